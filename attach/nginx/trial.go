package nginx

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	ngx "pointsman/nginx"
)

// Verify lets nginx check copies of the result. run runs nginx with arguments and
// returns its output.
func (r *Result) Verify(run func(args ...string) (string, error)) error {
	after, err := r.trial(run, true)
	if err == nil {
		return nil
	}
	if before, already := r.trial(run, false); already != nil {
		return fmt.Errorf("nginx refuses this configuration as it is, without pointsman's lines:\n%s", before)
	}
	return fmt.Errorf("nginx refuses the result, so nothing is written: %w\n%s", err, after)
}

// trial lets nginx check the files after the edits, or without our edits.
//
// The copies are in a separate folder. The other files beside nginx.conf are linked there,
// since relative paths start there. Includes of the user's files become lists of the
// copies.
func (r *Result) trial(run func(args ...string) (string, error), after bool) (string, error) {
	folder, err := os.MkdirTemp("", "pointsman-attach-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	own := filepath.Join(folder, "pointsman-own")
	if err := os.Mkdir(own, 0o700); err != nil {
		return "", err
	}
	texts := map[string]string{}
	for _, path := range r.conf.order {
		texts[path] = string(r.conf.files[path].plain)
	}
	if after {
		for i, c := range r.Changes {
			switch {
			case c.After == nil:
			case i < r.Theirs:
				texts[c.Path] = string(c.After)
			case filepath.Dir(c.Path) == r.out:
				if err := os.WriteFile(filepath.Join(own, filepath.Base(c.Path)), c.After, 0o600); err != nil {
					return "", err
				}
			}
		}
	}
	main := r.conf.root.File
	copies := map[string]string{main: filepath.Join(folder, filepath.Base(main))}
	for i, path := range r.conf.order {
		if path != main {
			copies[path] = filepath.Join(own, fmt.Sprintf("theirs-%d-%s", i, filepath.Base(path)))
		}
	}
	if err := beside(main, folder); err != nil {
		return "", err
	}
	for path, text := range texts {
		text = r.conf.relink(path, text, copies)
		text = strings.ReplaceAll(text, "include "+r.out+"/", "include "+own+"/")
		if err := os.WriteFile(copies[path], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	out, err := run("-t", "-c", copies[main])
	for path, copied := range copies {
		out = strings.ReplaceAll(out, copied, path)
	}
	return strings.TrimSpace(strings.ReplaceAll(out, own, r.out)), err
}

// beside links the files beside the main file into folder.
func beside(main, folder string) error {
	entries, err := os.ReadDir(filepath.Dir(main))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == filepath.Base(main) {
			continue
		}
		if err := os.Symlink(filepath.Join(filepath.Dir(main), e.Name()), filepath.Join(folder, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// relink makes each include of a file lead to the copies. It finds an include by its text:
// an edited text has all statements of the plain one except for those of proxy_pass.
func (c *configuration) relink(path, text string, copies map[string]string) string {
	var done []string
	c.root.Walk(func(d *ngx.Directive) {
		raw := ""
		if d.Name == "include" && d.File == path {
			raw = c.raw(d)
		}
		if raw == "" || slices.Contains(done, raw) {
			return
		}
		done = append(done, raw)
		var list []string
		for _, f := range d.Included {
			list = append(list, "include "+copies[f]+";")
		}
		text = strings.ReplaceAll(text, raw, strings.Join(list, " "))
	})
	return text
}
