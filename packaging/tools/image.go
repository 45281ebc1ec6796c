package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the account in the image, the one that distroless images have.
const user = 65532

// image writes an OCI layout with an image for each architecture, as a folder and as a
// tar. The image holds the binary, an account and the folders that it writes to.
func (b *build) image() error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range b.arches {
		img, err := b.imageOf(arch)
		if err != nil {
			return fmt.Errorf("the image for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: arch},
		}})
	}
	dir := filepath.Join(b.dist, "image")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "pointsman:" + b.tag()})); err != nil {
		return err
	}
	return b.pack(dir, filepath.Join(b.dist, "pointsman_"+b.version+"_oci.tar"))
}

// tag is the version in letters that tags of images may have.
func (b *build) tag() string {
	return string(bytes.Map(func(r rune) rune {
		if r == '+' || r == '~' {
			return '-'
		}
		return r
	}, []byte(b.version)))
}

func (b *build) imageOf(arch string) (v1.Image, error) {
	layer, err := b.layer(arch)
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: b.stamp}, CreatedBy: "make image"}})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, &v1.ConfigFile{
		Architecture: arch, OS: "linux", Created: v1.Time{Time: b.stamp},
		RootFS:  must(img.ConfigFile()).RootFS,
		History: must(img.ConfigFile()).History,
		Config: v1.Config{
			User:         fmt.Sprintf("%d:%d", user, user),
			Entrypoint:   []string{"/usr/bin/pointsman"},
			Cmd:          []string{"serve"},
			WorkingDir:   "/",
			ExposedPorts: map[string]struct{}{"9900/tcp": {}, "9901/tcp": {}, "9901/udp": {}, "9902/tcp": {}, "9909/tcp": {}},
			Labels: map[string]string{
				"org.opencontainers.image.title":       "pointsman",
				"org.opencontainers.image.description": "Routing agent for LLM replicas behind HAProxy or nginx",
				"org.opencontainers.image.licenses":    "Apache-2.0",
				"org.opencontainers.image.version":     b.version,
			},
		},
	})
}

// must is for the parts of an image that is in memory.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// layer is the whole file system.
func (b *build) layer(arch string) (v1.Layer, error) {
	binary, err := os.ReadFile(b.binary(arch))
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(b.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		mode int64
		own  bool
		data []byte
	}{
		{"etc/", 0o755, false, nil},
		{"etc/passwd", 0o644, false, fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\npointsman:x:%d:%[1]d:pointsman agent:/:/sbin/nologin\n", user)},
		{"etc/group", 0o644, false, fmt.Appendf(nil, "root:x:0:\npointsman:x:%d:\n", user)},
		{"etc/pointsman/", 0o755, false, nil},
		{"run/", 0o755, false, nil},
		{"run/pointsman/", 0o755, true, nil},
		{"tmp/", 0o1777, false, nil},
		{"usr/", 0o755, false, nil},
		{"usr/bin/", 0o755, false, nil},
		{"usr/bin/pointsman", 0o755, false, binary},
		{"usr/share/", 0o755, false, nil},
		{"usr/share/licenses/", 0o755, false, nil},
		{"usr/share/licenses/pointsman/", 0o755, false, nil},
		{"usr/share/licenses/pointsman/LICENSE", 0o644, false, license},
		{"var/", 0o755, false, nil},
		{"var/lib/", 0o755, false, nil},
		{"var/lib/pointsman/", 0o700, true, nil},
	} {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: b.stamp}
		if f.name[len(f.name)-1] == '/' {
			h.Typeflag = tar.TypeDir
		}
		if f.own {
			h.Uid, h.Gid = user, user
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
}

// pack writes a folder into a tar.
func (b *build) pack(dir, to string) error {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
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
		if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(rel), Mode: 0o644, Size: int64(len(data)), ModTime: b.stamp}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return write(to, out.Bytes(), 0o644)
}
