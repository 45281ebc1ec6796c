package demo

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pointsman/config"
	"pointsman/templates"
)

// defaults are those of the configuration file.
var defaults = config.Default()

// proxy is the proxy on the stage.
type proxy struct {
	name, title string
	command     []string // that runs it
	version     string

	// lay returns the files of the proxy, its arguments, and the lines of the
	// agent's configuration that concern it.
	lay func(l layout) (files []templates.File, args []string, conf string, err error)
}

// layout is what the proxy has to know of the stage: addresses as host:port.
type layout struct {
	proxy       *proxy
	front, feed string
	admin       string // the agent's
	folder      string // of the proxy
	agent       string // the agent's folder, with its sockets
	pool        templates.Pool
	timeout     time.Duration // of decisions
}

// proxies finds the proxies to run, and their versions.
func (o *Options) proxies() (list []*proxy, err error) {
	for i, name := range strings.Split(o.Proxy, ",") {
		p, err := findProxy(name, slices.Clone(o.Commands[i]))
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

func findProxy(name string, command []string) (*proxy, error) {
	p := &proxy{name: name, title: "HAProxy", command: command}
	if name == Nginx {
		p.title, p.lay = "nginx", layNginx
	}
	if _, err := exec.LookPath(p.command[0]); err != nil {
		// Where it is, but not in the path of a plain user.
		if sbin, err := exec.LookPath("/usr/sbin/" + p.command[0]); err == nil {
			p.command[0] = sbin
		}
	}
	out, err := exec.Command(p.command[0], append(slices.Clone(p.command[1:]), "-v")...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s does not run: %w (on Debian: apt-get install %s)", strings.Join(p.command, " "), err, p.name)
	}
	if name == Nginx {
		_, after, ok := strings.Cut(string(out), "nginx/")
		if !ok {
			return nil, errors.New("nginx -v prints no version")
		}
		p.version = strings.Fields(after)[0]
		return p, nil
	}
	v, err := templates.ParseVersion(string(out))
	if err != nil {
		return nil, err
	}
	p.version = v.String()
	if f := strings.Fields(string(out)); len(f) > 2 {
		p.version, _, _ = strings.Cut(f[2], "-")
	}
	p.lay = func(l layout) ([]templates.File, []string, string, error) { return layHAProxy(l, v) }
	return p, nil
}

func layHAProxy(l layout, v templates.Version) ([]templates.File, []string, string, error) {
	o := templates.HAProxy{
		Version: v, Bind: l.front,
		AgentAddress: "unix://" + filepath.Join(l.agent, "spoe.sock"), FeedAddress: l.feed,
		SPOEConf:   filepath.Join(l.folder, templates.SPOEFile),
		RuntimeAPI: "unix://" + filepath.Join(l.folder, "haproxy.sock"),
		Bufsize:    int(defaults.HAProxy.Bufsize), ProcessingTimeout: l.timeout,
		Pools: []templates.Pool{l.pool},
	}
	files, err := templates.RenderHAProxy(o)
	conf := fmt.Sprintf("listen: {spoe: %q, feed: %q, admin: %q}\nhaproxy: {runtime_api: %q}\n", o.AgentAddress, l.feed, l.admin, o.RuntimeAPI)
	return files, []string{"-db", "-f", filepath.Join(l.folder, templates.ConfigFile)}, conf, err
}

func layNginx(l layout) ([]templates.File, []string, string, error) {
	o := templates.Nginx{
		Bind:         l.front,
		AgentAddress: "unix://" + filepath.Join(l.agent, "nginx.sock"), FeedAddress: l.feed,
		Folder: l.folder, ProcessingTimeout: l.timeout, BodyBuffer: int(defaults.Nginx.BodyBuffer),
		Pools: []templates.Pool{l.pool},
	}
	files, err := templates.RenderNginx(o)
	conf := fmt.Sprintf("listen: {spoe: off, nginx: %q, feed: %q, admin: %q}\n", o.AgentAddress, l.feed, l.admin)
	return files, templates.NginxArguments(l.folder, filepath.Join(l.folder, templates.NginxFile)), conf, err
}
