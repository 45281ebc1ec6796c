// Command tools makes what a release consists of, below dist: packages, an image, a
// list of what is in them, and checksums. It runs without root, without a daemon and,
// once its modules are there, without a network. What it makes depends on the commit
// alone.
package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// build is one run.
type build struct {
	root    string // of the repository
	dist    string
	version string // of the packages
	shown   string // what `pointsman version` prints
	stamp   time.Time
	arches  []string

	maintainer string // of the packages: a name and an address
}

func main() {
	log.SetFlags(0)
	version := flag.String("version", "", "as git describes it")
	arches := flag.String("arch", "amd64,arm64", "for these")
	maintainer := flag.String("maintainer", "", "of the packages: NAME <ADDRESS>")
	dist := flag.String("dist", "dist", "folder to write to, from the repository")
	flag.Parse()
	root, err := filepath.Abs("../..")
	if err != nil {
		log.Fatal(err)
	}
	b := &build{root: root, shown: *version, arches: strings.Split(*arches, ","), maintainer: *maintainer}
	if b.maintainer == "" {
		b.maintainer = nobody
	}
	if _, err := mail.ParseAddress(b.maintainer); err != nil {
		log.Fatalf("tools: -maintainer %q: want NAME <ADDRESS>: %v", b.maintainer, err)
	}
	if b.dist = *dist; !filepath.IsAbs(b.dist) {
		b.dist = filepath.Join(root, b.dist)
	}
	if err := b.run(flag.Args()); err != nil {
		log.Fatal("tools: ", err)
	}
}

func (b *build) run(what []string) error {
	if err := b.describe(); err != nil {
		return err
	}
	if len(what) == 0 {
		return errors.New("want packages, image or release")
	}
	for _, dir := range []string{"stage", "bin"} {
		if err := os.RemoveAll(filepath.Join(b.dist, dir)); err != nil {
			return err
		}
	}
	for _, arch := range b.arches {
		if err := b.compile(arch); err != nil {
			return err
		}
	}
	if slices.Contains(what, "packages") || slices.Contains(what, "release") {
		if err := b.packages(); err != nil {
			return err
		}
	}
	if slices.Contains(what, "image") || slices.Contains(what, "release") {
		if err := b.image(); err != nil {
			return err
		}
	}
	if slices.Contains(what, "release") {
		if err := b.boms(); err != nil {
			return err
		}
	}
	return b.checksums()
}

// nobody stands in for the maintainer, whom each who distributes packages has to name.
// No mail reaches a domain below "invalid" (RFC 2606).
const nobody = "The pointsman authors <authors@pointsman.invalid>"

// tagged is a version that a tag names.
var tagged = regexp.MustCompile(`^v?([0-9]+\.[0-9]+\.[0-9]+)(-.*)?$`)

// describe finds the version, and the time of the commit.
func (b *build) describe() error {
	out, err := b.command("git", "log", "-1", "--format=%ct %h").Output()
	if err != nil {
		return fmt.Errorf("git log: %w", err)
	}
	at, hash, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		at = epoch
	}
	n, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return err
	}
	b.stamp = time.Unix(n, 0).UTC()
	m := tagged.FindStringSubmatch(b.shown)
	switch {
	case m == nil: // there is no tag yet
		b.version = fmt.Sprintf("0.0.0~git%s.%s", b.stamp.Format("20060102"), hash)
	case m[2] == "":
		b.version = m[1]
	default: // commits after a tag, or a candidate before it
		rest := strings.ReplaceAll(m[2][1:], "-", ".")
		sep := "+"
		if strings.HasPrefix(rest, "rc") || strings.HasPrefix(rest, "beta") || strings.HasPrefix(rest, "alpha") {
			sep = "~"
		}
		b.version = m[1] + sep + rest
	}
	if b.shown == "" {
		b.shown = b.version
	}
	return nil
}

func (b *build) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = b.root, os.Stderr
	return cmd
}

func (b *build) binary(arch string) string { return filepath.Join(b.dist, "bin", arch, "pointsman") }

func (b *build) compile(arch string) error {
	cmd := b.command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+b.shown, "-o", b.binary(arch), "./cmd/pointsman")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build for %s: %w", arch, err)
	}
	return nil
}

// manuals writes the man pages, completions and the schema with a binary that runs here.
func (b *build) manuals(dir string) error {
	own := b.binary(runtime.GOARCH)
	if !slices.Contains(b.arches, runtime.GOARCH) {
		if err := b.compile(runtime.GOARCH); err != nil {
			return err
		}
	}
	if err := b.command(own, "man", filepath.Join(dir, "man")).Run(); err != nil {
		return err
	}
	change := fmt.Sprintf("pointsman (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n", b.version, b.maintainer, b.stamp.Format(time.RFC1123Z))
	if err := write(filepath.Join(dir, "changelog"), []byte(change), 0o644); err != nil {
		return err
	}
	// nginx has a group of its own where there are rpms.
	socket, err := os.ReadFile(filepath.Join(b.root, "templates/systemd/pointsman-nginx.socket"))
	if err != nil {
		return err
	}
	other := bytes.Replace(socket, []byte("\nSocketGroup=www-data\n"), []byte("\nSocketGroup=nginx\n"), 1)
	if bytes.Equal(socket, other) {
		return errors.New("pointsman-nginx.socket has no SocketGroup=www-data")
	}
	if err := write(filepath.Join(dir, "pointsman-nginx.socket"), other, 0o644); err != nil {
		return err
	}
	for name, args := range map[string][]string{
		"bash": {"completion", "bash"}, "zsh": {"completion", "zsh"}, "fish": {"completion", "fish"}, "schema": {"config", "--schema"},
	} {
		out, err := b.command(own, args...).Output()
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, name), out, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// write writes a file and the folders above it.
func write(path string, data []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, data, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// zip compresses as gzip -9n does: without name and time.
func zip(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}
