package check

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"pointsman/haproxy"
	"pointsman/resolve"
	"pointsman/templates"
)

// spoeUnit is the installed unit of the sockets that systemd opens for the agent.
const spoeUnit = "/etc/systemd/system/pointsman-spoe.socket"

// checkHAProxy checks what concerns HAProxy.
func checkHAProxy(w io.Writer, r *resolve.Config, o Options) error {
	binary, err := exec.LookPath("haproxy")
	if err != nil && !o.Rendered && r.File.HAProxy.Version == "" {
		fmt.Fprintln(w, "haproxy: not installed here, so what is rendered for it was not tried")
		return nil
	}
	t, err := r.HAProxy()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "pointsman-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := checkRendered(w, t, folder, binary); err != nil {
		return err
	}
	if o.HAProxyConfig == "" {
		return nil
	}
	return checkAttached(w, r, t, o.HAProxyConfig, folder, binary)
}

// checkRendered renders the complete set into a folder and has HAProxy check it.
func checkRendered(w io.Writer, t templates.HAProxy, folder, binary string) error {
	t.SPOEConf = filepath.Join(folder, templates.SPOEFile)
	files, err := templates.RenderHAProxy(t)
	if err != nil {
		return err
	}
	if err := templates.Write(folder, files); err != nil {
		return err
	}
	if binary == "" {
		fmt.Fprintf(w, "haproxy %s: rendered, but there is no haproxy here to try it\n", t.Version)
		return nil
	}
	if err := haproxyAccepts(binary, filepath.Join(folder, templates.ConfigFile)); err != nil {
		if here, e := resolve.InstalledVersion(); e == nil && !here.AtLeast(t.Version.Major, t.Version.Minor) {
			return fmt.Errorf("what is rendered for HAProxy %s is refused by the %s that is installed here: check it where %[1]s is, or give that version", t.Version, here)
		}
		return fmt.Errorf("the rendered configuration: %w", err)
	}
	fmt.Fprintf(w, "haproxy %s: accepts the rendered configuration\n", t.Version)
	return nil
}

// checkAttached reports what the user's own configuration misses, and has
// HAProxy check it together with ours.
func checkAttached(w io.Writer, r *resolve.Config, t templates.HAProxy, path, folder, binary string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	advice := haproxy.Advise(text, wanted(r, t))
	for _, a := range advice {
		fmt.Fprintf(w, "%s: %s\n", path, a)
	}
	if binary != "" {
		if err := checkTogether(t, text, folder, binary); err != nil {
			return fmt.Errorf("%s with %s: %w", path, templates.AttachedFile, err)
		}
		fmt.Fprintf(w, "%s: haproxy accepts it together with %s\n", path, templates.AttachedFile)
	}
	if len(advice) > 0 {
		return errors.New("something is missing: `pointsman render haproxy --attach` prints the lines")
	}
	return nil
}

// wanted is what the user's own configuration must provide.
func wanted(r *resolve.Config, t templates.HAProxy) haproxy.Wanted {
	w := haproxy.Wanted{Version: t.Version, Bufsize: t.Bufsize, Inside: listensOn(spoeUnit)}
	if path, ok := strings.CutPrefix(r.File.Listen.SPOE, "unix://"); ok {
		w.Socket = path
	}
	for _, p := range t.Pools {
		w.Pools = append(w.Pools, p.Name)
		if len(p.Replicas) == 0 {
			w.Own = append(w.Own, p.Name)
		}
		w.Queue = max(w.Queue, p.QueueTimeout)
	}
	return w
}

// checkTogether has HAProxy check the user's configuration, text, with the files
// that are attached to it. Lines that name the installed SPOE file read the one
// just rendered, since the other may not be installed yet.
func checkTogether(t templates.HAProxy, text []byte, folder, binary string) error {
	rendered := filepath.Join(folder, templates.SPOEFile)
	own := bytes.ReplaceAll(text, []byte(t.SPOEConf), []byte(rendered))
	t.SPOEConf = rendered
	files, _, err := templates.AttachHAProxy(t)
	if err != nil {
		return err
	}
	files = append(files, templates.File{Name: "own.cfg", Text: string(own)})
	if err := templates.Write(folder, files); err != nil {
		return err
	}
	return haproxyAccepts(binary, filepath.Join(folder, "own.cfg"), filepath.Join(folder, templates.AttachedFile))
}

// listensOn returns the paths that a systemd socket unit listens on; none where
// it is not installed.
func listensOn(unit string) (paths []string) {
	text, err := os.ReadFile(unit)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "ListenStream=/"); ok {
			paths = append(paths, "/"+path)
		}
	}
	return paths
}

// haproxyAccepts runs haproxy -c on files, in their order.
func haproxyAccepts(binary string, files ...string) error {
	args := []string{"-c"}
	for _, f := range files {
		args = append(args, "-f", f)
	}
	return run("haproxy -c", binary, args...)
}
