package check

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"pointsman/advice"
	"pointsman/nginx"
	"pointsman/resolve"
	"pointsman/templates"
)

// checkNginx runs the checks for nginx: of the user's own configuration or, without one, of
// the complete rendered set.
func (rep *report) checkNginx(r *resolve.Config, o Options) error {
	own := o.NginxConfig
	t, err := r.Nginx()
	if err != nil {
		return err
	}
	binary, _ := exec.LookPath("nginx") // "" when there is none
	if own == "" {
		return rep.checkNginxRendered(t, binary)
	}
	faults, err := nginx.Advise(own, r.File.Listen.Nginx, r.File.Listen.Feed)
	if err != nil {
		return err
	}
	if t.Prefills {
		more, err := nginx.AdvisePrefill(own, t.PrefillHeader, r.PrefillReplicas())
		if err != nil {
			return err
		}
		faults = append(faults, more...)
	}
	rep.found(faults...)
	warnings, err := nginx.Lint(own, o.Backends)
	if err != nil {
		return err
	}
	for _, f := range warnings {
		if !slices.ContainsFunc(faults, func(g advice.Finding) bool { return g.Rule == f.Rule }) {
			rep.found(f)
		}
	}
	rep.checkSocket(r.File.Listen.Nginx, "nginx", nginx.User(own))
	if binary == "" {
		fmt.Fprintln(rep, "nginx: not in the path, so the configuration was not tried")
	} else if err := nginxAccepts(binary, "-c", own); err != nil {
		return fmt.Errorf("%s: %w", own, err)
	} else {
		fmt.Fprintf(rep, "%s: nginx accepts it\n", own)
	}
	return nil
}

// checkNginxRendered lets nginx check the complete set in a separate folder.
func (rep *report) checkNginxRendered(t templates.Nginx, binary string) error {
	folder, err := os.MkdirTemp("", "pointsman-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	t.Folder = folder
	files, err := templates.RenderNginx(t)
	if err != nil {
		return err
	}
	if binary == "" {
		fmt.Fprintln(rep, "nginx: not in the path, so what is rendered for it was not tried")
		return nil
	}
	if err := templates.Write(folder, files); err != nil {
		return err
	}
	if err := nginxAccepts(binary, templates.NginxArguments(folder, filepath.Join(folder, templates.NginxFile))...); err != nil {
		return fmt.Errorf("the rendered configuration: %w", err)
	}
	fmt.Fprintln(rep, "nginx: accepts the rendered configuration")
	return nil
}

// nginxAccepts runs nginx -t.
func nginxAccepts(binary string, args ...string) error {
	return run("nginx -t", binary, nil, append([]string{"-t"}, args...)...)
}
