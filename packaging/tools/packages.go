package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers itself
)

// stage lays out what the packages of an architecture hold.
func (b *build) stage(arch string) (string, error) {
	dir := filepath.Join(b.dist, "stage", arch)
	made := filepath.Join(b.dist, "stage", "made")
	if _, err := os.Stat(made); err != nil {
		if err := b.manuals(made); err != nil {
			return "", err
		}
	}
	type file struct {
		to, from string
		zipped   bool
	}
	files := []file{
		{"common/usr/bin/pointsman", b.binary(arch), false},
		{"common/usr/lib/systemd/system/pointsman.service", "templates/systemd/pointsman.service", false},
		{"common/usr/lib/systemd/system/pointsman-spoe.socket", "templates/systemd/pointsman-spoe.socket", false},
		{"deb/usr/lib/systemd/system/pointsman-nginx.socket", "templates/systemd/pointsman-nginx.socket", false},
		{"tar/usr/lib/systemd/system/pointsman-nginx.socket", "templates/systemd/pointsman-nginx.socket", false},
		{"rpm/usr/lib/systemd/system/pointsman-nginx.socket", filepath.Join(made, "pointsman-nginx.socket"), false},
		{"common/usr/lib/sysusers.d/pointsman.conf", "templates/systemd/pointsman.sysusers", false},
		{"common/usr/share/pointsman/pointsman-haproxy.sysusers", "templates/systemd/pointsman-haproxy.sysusers", false},
		{"common/usr/lib/tmpfiles.d/pointsman.conf", "packaging/pointsman.tmpfiles", false},
		{"common/usr/share/bash-completion/completions/pointsman", filepath.Join(made, "bash"), false},
		{"common/usr/share/fish/vendor_completions.d/pointsman.fish", filepath.Join(made, "fish"), false},
		{"deb/usr/share/zsh/vendor-completions/_pointsman", filepath.Join(made, "zsh"), false},
		{"rpm/usr/share/zsh/site-functions/_pointsman", filepath.Join(made, "zsh"), false},
		{"common/usr/share/pointsman/pointsman.schema.json", filepath.Join(made, "schema"), false},
		{"deb/usr/share/doc/pointsman/copyright", "packaging/deb/copyright", false},
		{"deb/usr/share/lintian/overrides/pointsman", "packaging/deb/lintian-overrides", false},
		{"deb/usr/share/doc/pointsman/changelog.gz", filepath.Join(made, "changelog"), true},
		{"common/usr/share/doc/pointsman/CHANGELOG.md", "CHANGELOG.md", false},
		{"rpm/usr/share/licenses/pointsman/LICENSE", "LICENSE", false},
		{"common/usr/share/doc/pointsman/NOTICE", "NOTICE", false},
		{"common/usr/share/doc/pointsman/README.md", "README.md", false},
		{"common/usr/share/doc/pointsman/SECURITY.md", "SECURITY.md", false},
		{"config/pointsman.yaml", "packaging/pointsman.yaml", false},
		{"config/pointsman.default", "packaging/pointsman.default", false},
	}
	pages, err := filepath.Glob(filepath.Join(made, "man", "*.[15]"))
	if err != nil {
		return "", err
	}
	for _, p := range pages {
		files = append(files, file{"common/usr/share/man/man" + p[len(p)-1:] + "/" + filepath.Base(p) + ".gz", p, true})
	}
	for _, pattern := range []string{"docs/*.md", "docs/policies/*.md", "docs/tutorials/*.md", "docs/migration/*.md", "packaging/grafana/*", "packaging/prometheus/*"} {
		list, err := filepath.Glob(filepath.Join(b.root, pattern))
		if err != nil {
			return "", err
		}
		for _, f := range list {
			rel, err := filepath.Rel(b.root, f)
			if err != nil {
				return "", err
			}
			to := "common/usr/share/doc/pointsman/" + rel
			if strings.HasPrefix(rel, "packaging/") {
				to = "common/usr/share/pointsman/" + strings.TrimPrefix(rel, "packaging/")
			}
			files = append(files, file{to, f, false})
		}
	}
	for _, f := range files {
		from := f.from
		if !filepath.IsAbs(from) {
			from = filepath.Join(b.root, from)
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		if f.zipped {
			if data, err = zip(data); err != nil {
				return "", err
			}
		}
		mode := fs.FileMode(0o644)
		if strings.Contains(f.to, "/bin/") {
			mode = 0o755
		}
		if err := write(filepath.Join(dir, f.to), data, mode); err != nil {
			return "", err
		}
	}
	return dir, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, b.stamp, b.stamp)
	})
}

// packages writes a deb, an rpm and an archive for each architecture.
func (b *build) packages() error {
	for _, arch := range b.arches {
		stage, err := b.stage(arch)
		if err != nil {
			return err
		}
		env := map[string]string{"ARCH": arch, "VERSION": b.version, "STAGE": stage, "MAINTAINER": b.maintainer}
		config, err := nfpm.ParseFileWithEnvMapping(filepath.Join(b.root, "packaging", "nfpm.yaml"), func(name string) string { return env[name] })
		if err != nil {
			return err
		}
		for _, kind := range []string{"deb", "rpm"} {
			info, err := config.Get(kind)
			if err != nil {
				return err
			}
			info.MTime = b.stamp
			if kind == "deb" {
				info.License = "" // no field of Debian's: copyright has it
			}
			info = nfpm.WithDefaults(info)
			p, err := nfpm.Get(kind)
			if err != nil {
				return err
			}
			var out bytes.Buffer
			if err := p.Package(info, &out); err != nil {
				return fmt.Errorf("%s for %s: %w", kind, arch, err)
			}
			if err := write(filepath.Join(b.dist, p.ConventionalFileName(info)), out.Bytes(), 0o644); err != nil {
				return err
			}
		}
		if err := b.archive(arch, stage); err != nil {
			return err
		}
	}
	return nil
}

// archive writes a tar with the same files, for systems without packages.
func (b *build) archive(arch, stage string) error {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	name := fmt.Sprintf("pointsman_%s_linux_%s", b.version, arch)
	for _, part := range []string{"common", "config", "tar"} {
		dir := filepath.Join(stage, part)
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			rel, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			h := &tar.Header{Name: name + "/" + filepath.ToSlash(rel), Mode: 0o644, Size: int64(len(data)), ModTime: b.stamp, Format: tar.FormatPAX}
			if strings.Contains(rel, "bin/") {
				h.Mode = 0o755
			}
			if err := w.WriteHeader(h); err != nil {
				return err
			}
			_, err = w.Write(data)
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return write(filepath.Join(b.dist, name+".tar.gz"), out.Bytes(), 0o644)
}

// checksums lists the files of the release, as sha256sum -c reads it.
func (b *build) checksums() error {
	entries, err := os.ReadDir(b.dist)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		if e.IsDir() || e.Name() == "SHA256SUMS" {
			continue
		}
		f, err := os.Open(filepath.Join(b.dist, e.Name()))
		if err != nil {
			return err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", h.Sum(nil), e.Name()))
	}
	slices.Sort(lines)
	return write(filepath.Join(b.dist, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}
