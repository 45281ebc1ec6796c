package nginx

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"pointsman/attach"
	ngx "pointsman/nginx"
)

// source is one of the user's files. plain is its text without our edits.
type source struct {
	attach.Change
	plain []byte
}

// configuration is the user's configuration without our edits.
type configuration struct {
	root  *ngx.Directive
	http  *ngx.Directive
	files map[string]*source
	order []string // paths, in the order of their first reading
}

// place identifies a directive: one that is included twice is still one place.
type place struct {
	file string
	from int
}

func placeOf(d *ngx.Directive) place { return place{d.File, d.From} }

// read reads the configuration and its includes. out is the folder of our files.
func read(main, out string) (*configuration, error) {
	main, err := filepath.Abs(main)
	if err != nil {
		return nil, err
	}
	c := &configuration{files: map[string]*source{}}
	c.root, err = ngx.Load(main, func(path string) ([]byte, error) {
		if s := c.files[path]; s != nil {
			return s.plain, nil
		}
		change, err := attach.Read(path)
		if err != nil {
			return nil, err
		}
		if change.Before == nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		}
		s := &source{change, attach.Strip(change.Before)}
		c.files[path] = s
		c.order = append(c.order, path)
		return s.plain, nil
	})
	if errors.Is(err, fs.ErrNotExist) && c.files[main] == nil {
		return nil, fmt.Errorf("%w: name your configuration by --nginx-config", err)
	}
	if err != nil {
		return nil, err
	}
	for path := range c.files {
		if filepath.Dir(path) == filepath.Clean(out) && ours(filepath.Base(path)) {
			return nil, fmt.Errorf("%s is one of pointsman's files and your configuration includes it by itself: take that include out, or choose another folder with --out", path)
		}
	}
	if https := c.root.Own("http"); len(https) > 0 {
		c.http = https[0]
	} else {
		return nil, fmt.Errorf("%s has no http block", main)
	}
	for _, u := range c.http.Own("upstream") {
		if slices.Contains(u.Args, agentUpstream) {
			return nil, fmt.Errorf("%s: pointsman was attached by hand: take those lines out first, or go on by hand with `pointsman render nginx --attach`", u.At())
		}
	}
	return c, nil
}

// raw is a directive as written.
func (c *configuration) raw(d *ngx.Directive) string {
	return string(c.files[d.File].plain[d.From:d.To])
}

// enclosing is the nearest block of that name around d, or nil.
func enclosing(d *ngx.Directive, name string) *ngx.Directive {
	for ; d != nil && d.Name != name; d = d.Parent {
	}
	return d
}

// errNothing is returned when there is nothing to attach to, errNoTarget when it is not
// known where anything leads.
var (
	errNothing  = errors.New("no proxy_pass in this configuration")
	errNoTarget = errors.New("no proxy_pass that pointsman can follow in this configuration")
)
