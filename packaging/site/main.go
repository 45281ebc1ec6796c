// Command site builds the documentation site from the Markdown of the repository and
// from the reference that the program prints. It is a module of its own: what it needs
// is not in the program.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	out := flag.String("out", "", "folder of the site; by default dist/docs of the repository")
	root := flag.String("root", "../..", "the repository")
	version := flag.String("version", "", "version that the pages name")
	flag.Parse()
	if *out == "" {
		*out = filepath.Join(*root, "dist", "docs")
	}
	if err := run(*root, *out, *version); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

func run(root, out, version string) error {
	reference, err := os.MkdirTemp("", "pointsman-reference")
	if err != nil {
		return err
	}
	defer os.RemoveAll(reference)
	cmd := exec.Command("go", "run", "-trimpath", "./cmd/pointsman", "reference", reference)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the reference: %w", err)
	}
	s := newSite(root, version)
	if err := s.collect(reference); err != nil {
		return err
	}
	if err := s.render(); err != nil {
		return err
	}
	if err := s.checkLinks(); err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := s.write(out); err != nil {
		return err
	}
	fmt.Printf("%s: %d pages, %d entries to search\n", out, len(s.pages), len(s.entries))
	return nil
}
