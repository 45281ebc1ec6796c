package check

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"pointsman/advice"
	"pointsman/haproxy"
	"pointsman/resolve"
	"pointsman/templates"
)

// spoeUnit is the installed unit of the sockets that systemd opens for the agent.
const spoeUnit = "/etc/systemd/system/pointsman-spoe.socket"

// packagedUnit is the same unit as a package installs it; one in /etc overrides it.
const packagedUnit = "/usr/lib/systemd/system/pointsman-spoe.socket"

// checkHAProxy runs the checks for HAProxy.
func (rep *report) checkHAProxy(r *resolve.Config, o Options) error {
	if r.File.Listen.SPOE == "" && len(o.HAProxyConfig) == 0 && !o.Rendered {
		return nil // it is not to ask
	}
	binary, err := exec.LookPath("haproxy")
	if err != nil && !o.Rendered && len(o.HAProxyConfig) == 0 && r.File.HAProxy.Version == "" {
		fmt.Fprintln(rep, "haproxy: not installed here, so what is rendered for it was not tried")
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
	if err := rep.checkRendered(t, folder, binary); err != nil {
		return err
	}
	if len(o.HAProxyConfig) == 0 {
		return nil
	}
	if err := rep.checkAttached(r, t, o, folder, binary); err != nil {
		return err
	}
	rep.checkRuntime(r)
	rep.checkSocket(r.File.Listen.SPOE, "HAProxy", haproxyUser(o.HAProxyConfig))
	return nil
}

// haproxyUser is the account that HAProxy's workers run as, "" if they do not change
// it.
func haproxyUser(paths []string) (user string) {
	files, err := readFiles(paths)
	if err != nil {
		return ""
	}
	for _, f := range files {
		for _, s := range haproxy.ParseConfig(f.Text) {
			if s.Section == "global" && s.Is("user") {
				user = s.Arg(1)
			}
		}
	}
	return user
}

// checkRendered renders the complete set into a folder and lets HAProxy check it.
func (rep *report) checkRendered(t templates.HAProxy, folder, binary string) error {
	t.SPOEConf = filepath.Join(folder, templates.SPOEFile)
	files, err := templates.RenderHAProxy(t)
	if err != nil {
		return err
	}
	if err := templates.Write(folder, files); err != nil {
		return err
	}
	if binary == "" {
		fmt.Fprintf(rep, "haproxy %s: rendered, but there is no haproxy here to try it\n", t.Version)
		return nil
	}
	if err := haproxyAccepts(binary, nil, filepath.Join(folder, templates.ConfigFile)); err != nil {
		if here, e := resolve.InstalledVersion(); e == nil && !here.AtLeast(t.Version.Major, t.Version.Minor) {
			return fmt.Errorf("what is rendered for HAProxy %s is refused by the %s that is installed here: check it where %[1]s is, or give that version", t.Version, here)
		}
		return fmt.Errorf("the rendered configuration: %w", err)
	}
	fmt.Fprintf(rep, "haproxy %s: accepts the rendered configuration\n", t.Version)
	return nil
}

// readFiles reads files, and the .cfg files of folders in HAProxy's order.
func readFiles(paths []string) (files []haproxy.File, err error) {
	for _, path := range paths {
		names := []string{path}
		if info, err := os.Stat(path); err != nil {
			return nil, err
		} else if info.IsDir() {
			if names, err = filepath.Glob(filepath.Join(path, "[^.]*.cfg")); err != nil {
				return nil, err
			}
			slices.Sort(names)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			files = append(files, haproxy.File{Name: name, Text: text})
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no .cfg file in it", strings.Join(paths, ", "))
	}
	return files, nil
}

// checkAttached reports what the user's own configuration lacks, and lets HAProxy check it
// together with ours.
func (rep *report) checkAttached(r *resolve.Config, t templates.HAProxy, o Options, folder, binary string) error {
	files, err := readFiles(o.HAProxyConfig)
	if err != nil {
		return err
	}
	names := strings.Join(o.HAProxyConfig, ", ")
	w := wanted(r, t)
	own := haproxy.Backends(files)
	var engines []string // the user's own backends of engines
	for i := range t.Pools {
		if slices.Contains(own, t.Pools[i].Name) {
			t.Pools[i].Replicas = nil // the user's backend serves, and ours would be a second one of its name
			engines = append(engines, t.Pools[i].Name)
		}
	}
	all := files
	var ours []templates.File
	if !haproxy.HasAgent(files) {
		if ours, _, err = templates.AttachHAProxy(t); err != nil {
			return err
		}
		w.Ours = templates.AttachedFile
		for _, f := range ours {
			if f.Name == templates.AttachedFile {
				all = append(slices.Clone(files), haproxy.File{Name: f.Name, Text: []byte(f.Text)})
			}
		}
	}
	findings := haproxy.Advise(all, w)
	rep.found(findings...)
	for _, f := range lintHAProxy(all, append(engines, o.Backends...)) {
		if f.File != w.Ours && !slices.ContainsFunc(findings, func(g advice.Finding) bool { return g.Rule == f.Rule }) {
			rep.found(f)
		}
	}
	if binary == "" {
		return nil
	}
	with, together := "", ""
	if len(ours) > 0 {
		with, together = " with "+templates.AttachedFile, " together with "+templates.AttachedFile
	}
	if err := checkTogether(t, files, ours, folder, binary); err != nil {
		return fmt.Errorf("%s%s: %w", names, with, err)
	}
	fmt.Fprintf(rep, "%s: haproxy accepts it%s\n", names, together)
	return nil
}

// lintHAProxy warns with the release that is installed here.
func lintHAProxy(files []haproxy.File, backends []string) []advice.Finding {
	release := haproxy.Release{Patch: -1}
	if out, err := exec.Command("haproxy", "-v").Output(); err == nil {
		release = haproxy.ParseRelease(string(out))
	}
	return haproxy.Lint(files, release, backends)
}

// wanted is what the user's own configuration must provide.
func wanted(r *resolve.Config, t templates.HAProxy) haproxy.Wanted {
	w := haproxy.Wanted{Version: t.Version, Bufsize: t.Bufsize, Decision: t.ProcessingTimeout, Agent: t.AgentAddress, Feed: t.FeedAddress, Inside: append(listensOn(spoeUnit), listensOn(packagedUnit)...), Replicas: map[string]string{}, Listed: map[string]map[string]string{}}
	if path, ok := strings.CutPrefix(r.File.Listen.SPOE, "unix://"); ok {
		w.Socket = path
	}
	if t.Prefills {
		w.Prefill, w.PrefillHeader = r.PrefillReplicas(), t.PrefillHeader
	}
	for _, p := range t.Pools {
		w.Pools = append(w.Pools, p.Name)
		if len(p.Replicas) == 0 {
			w.Own = append(w.Own, p.Name)
		}
		w.Listed[p.Name] = map[string]string{}
		for _, r := range p.Replicas {
			w.Replicas[r.Address] = p.Name
			w.Listed[p.Name][r.Name] = r.Address
		}
		w.Queue = max(w.Queue, p.QueueTimeout)
	}
	return w
}

// checkTogether lets HAProxy check the user's files together with the attached ones. If a
// line names an SPOE file that is not installed yet, HAProxy reads the one just rendered.
// Messages name the user's files, not the copies.
func checkTogether(t templates.HAProxy, files []haproxy.File, ours []templates.File, folder, binary string) error {
	rendered := filepath.Join(folder, templates.SPOEFile)
	swap := func(text []byte) []byte { return text }
	if _, err := os.Stat(t.SPOEConf); err != nil {
		swap = func(text []byte) []byte { return bytes.ReplaceAll(text, []byte(t.SPOEConf), []byte(rendered)) }
	}
	var args, names []string
	for i, f := range files {
		copied := fmt.Sprintf("own-%d.cfg", i)
		if err := templates.Write(folder, []templates.File{{Name: copied, Text: string(swap(f.Text))}}); err != nil {
			return err
		}
		args = append(args, filepath.Join(folder, copied))
		names = append(names, filepath.Join(folder, copied), f.Name, copied, f.Name)
	}
	for _, f := range ours {
		f.Text = string(swap([]byte(f.Text)))
		if err := templates.Write(folder, []templates.File{f}); err != nil {
			return err
		}
		if f.Name == templates.AttachedFile {
			args = append(args, filepath.Join(folder, f.Name))
			names = append(names, filepath.Join(folder, f.Name), f.Name)
		}
	}
	names = append(names, rendered, t.SPOEConf)
	return haproxyAccepts(binary, strings.NewReplacer(names...), args...)
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
func haproxyAccepts(binary string, names *strings.Replacer, files ...string) error {
	args := []string{"-c"}
	for _, f := range files {
		args = append(args, "-f", f)
	}
	return run("haproxy -c", binary, names, args...)
}
