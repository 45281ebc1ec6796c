package templates

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Write writes the files into a folder, which it makes if need be.
func Write(folder string, files []File) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(folder, f.Name), []byte(f.Text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Print prints files and snippets, each under a line that says where it goes.
func Print(w io.Writer, files []File, snippets []Snippet) {
	for _, f := range files {
		fmt.Fprintf(w, "# ===== file %s =====\n%s\n", f.Name, strings.TrimLeft(f.Text, "\n"))
	}
	for _, s := range snippets {
		note := ""
		if s.Optional {
			note = " (optional)"
		}
		fmt.Fprintf(w, "# ===== paste into your section %s%s =====\n%s\n", s.Where, note, strings.TrimLeft(s.Text, "\n"))
	}
}

// NginxArguments run nginx in the foreground, with a configuration in a folder
// of its own.
func NginxArguments(folder, conf string) []string {
	global := "daemon off;"
	if os.Getuid() == 0 {
		global += " user root;" // only root can read the folder
	}
	return []string{"-p", folder, "-c", conf, "-g", global}
}
