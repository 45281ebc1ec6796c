package check

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"pointsman/nginx"
	"pointsman/resolve"
	"pointsman/templates"
)

// checkNginx checks what concerns nginx: the user's own configuration or,
// without one, the complete set that is rendered.
func checkNginx(w io.Writer, r *resolve.Config, own string) error {
	t, err := r.Nginx()
	if err != nil {
		return err
	}
	binary, _ := exec.LookPath("nginx") // "" when there is none
	if own == "" {
		return checkNginxRendered(w, t, binary)
	}
	advice, err := nginx.Advise(own, r.File.Listen.Feed)
	if err != nil {
		return err
	}
	for _, a := range advice {
		fmt.Fprintf(w, "%s: %s\n", own, a)
	}
	if binary == "" {
		fmt.Fprintln(w, "nginx: not in the path, so the configuration was not tried")
	} else if err := nginxAccepts(binary, "-c", own); err != nil {
		return fmt.Errorf("%s: %w", own, err)
	} else {
		fmt.Fprintf(w, "%s: nginx accepts it\n", own)
	}
	if len(advice) > 0 {
		return errors.New("something is missing: `pointsman render nginx --attach` prints the lines")
	}
	return nil
}

// checkNginxRendered has nginx check the complete set in a folder of its own.
func checkNginxRendered(w io.Writer, t templates.Nginx, binary string) error {
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
		fmt.Fprintln(w, "nginx: not in the path, so what is rendered for it was not tried")
		return nil
	}
	if err := templates.Write(folder, files); err != nil {
		return err
	}
	if err := nginxAccepts(binary, templates.NginxArguments(folder, filepath.Join(folder, templates.NginxFile))...); err != nil {
		return fmt.Errorf("the rendered configuration: %w", err)
	}
	fmt.Fprintln(w, "nginx: accepts the rendered configuration")
	return nil
}

// nginxAccepts runs nginx -t.
func nginxAccepts(binary string, args ...string) error {
	return run("nginx -t", binary, append([]string{"-t"}, args...)...)
}
