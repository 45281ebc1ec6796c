package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pointsman/config"
	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/resolve"
	"pointsman/templates"
)

// The machine that runs the tests may have any users.
func init() { localUsers = func() int { return 0 } }

// TestFeedBesideOtherUsers: a port that others can connect to is warned of.
func TestFeedBesideOtherUsers(t *testing.T) {
	localUsers = func() int { return 3 }
	defer func() { localUsers = func() int { return 0 } }()
	says, _ := checked(t, "listen: {spoe: off, nginx: '127.0.0.1:1'}\n"+pools, nil, Options{Name: "f"})
	if !strings.Contains(says, "warning: f: listen.feed: other users of this machine (3 can log in)") {
		t.Error(says)
	}
}

// checked runs the check of a configuration with programs in the path, which are
// shell scripts by their names.
func checked(t *testing.T, text string, programs map[string]string, o Options) (string, error) {
	t.Helper()
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ro := resolve.Options{Policies: policy.Table{policy.Plain("least_work", func() decider.Policy { return policy.LeastWork{} })}}
	c, err := config.Parse("f", []byte(text), nil, ro.Checks())
	if err != nil {
		t.Fatal(err)
	}
	r, err := resolve.Resolve(c, ro)
	if err != nil {
		t.Fatal(err)
	}
	o.Name = "f"
	var b strings.Builder
	err = Run(&b, r, o)
	return b.String(), err
}

const (
	pools   = "pools: {llama: {models: [m], replicas: {r1: {address: '127.0.0.1:1'}}}}\n"
	version = `[ "$1" = -v ] && echo HAProxy version 3.0.1 2024/06/10; `
	refuses = "[ $1 = -v ] || { echo line 3: what is this; exit 1; }"
)

func TestCheckHAProxy(t *testing.T) {
	own := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(own, []byte("global\n  tune.bufsize 131072\ndefaults\n  mode http\nfrontend f\n  bind :80\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		programs   map[string]string
		o          Options
		says       string
		err        string
	}{
		{"not installed", pools, nil, Options{}, "haproxy: not installed here", ""},
		{"a version, not installed", "haproxy: {version: 3.2}\n" + pools, nil, Options{}, "haproxy 3.2: rendered, but there is no haproxy here", ""},
		{"accepts", pools, map[string]string{"haproxy": version + "true"}, Options{}, "f: ok, 1 pool\nhaproxy 3.0: accepts the rendered configuration", ""},
		{"refuses", pools, map[string]string{"haproxy": version + refuses}, Options{}, "", "the rendered configuration: haproxy -c refuses it:\nline 3"},
		{"older", "haproxy: {version: 3.2}\n" + pools, map[string]string{"haproxy": version + refuses}, Options{}, "", "rendered for HAProxy 3.2 is refused by the 3.0"},
		{"own", pools, map[string]string{"haproxy": version + "true"}, Options{HAProxyConfig: []string{own}}, own + ": haproxy accepts it together with " + templates.AttachedFile, "fault"},
		{"own, not installed", pools, nil, Options{HAProxyConfig: []string{own}}, "", "give --version"},
		{"own, a version, not installed", "haproxy: {version: 3.2}\n" + pools, nil, Options{HAProxyConfig: []string{own}}, own + ": frontend: no use_backend leads to llama", "fault"},
		{"own, absent", pools, map[string]string{"haproxy": version + "true"}, Options{HAProxyConfig: []string{own + ".absent"}}, "", "no such file"},
		{"off", "listen: {spoe: off}\n" + pools, nil, Options{}, "warning: f:1:16: listen.spoe: off", ""},
		{"off, with nginx", "listen: {spoe: off, nginx: 'unix:///run/pointsman/nginx.sock'}\n" + pools, map[string]string{"haproxy": version + "true"}, Options{}, "f: ok, 1 pool\n", ""},
		{"off, own", "listen: {spoe: off}\n" + pools, map[string]string{"haproxy": version + "true"}, Options{HAProxyConfig: []string{own}}, "", "HAProxy needs both"},
		{"several", pools[:len(pools)-2] + ", qwen: {models: [q], replicas: {r1: {address: '127.0.0.1:2'}}}}\n", nil, Options{}, "f: ok, 2 pools", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			says, err := checked(t, c.text, c.programs, c.o)
			if !strings.Contains(says, c.says) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("says %s\nand ends with %v", says, err)
			}
		})
	}
}

func TestCheckNginx(t *testing.T) {
	text := "listen: {spoe: off, nginx: 'unix:///run/pointsman/nginx.sock'}\n" + pools
	own := filepath.Join(t.TempDir(), "nginx.conf")
	if err := os.WriteFile(own, []byte("http { server { listen 80; } }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		programs map[string]string
		o        Options
		says     string
		err      string
	}{
		{"not installed", nil, Options{}, "nginx: not in the path", ""},
		{"accepts", map[string]string{"nginx": "true"}, Options{}, "nginx: accepts the rendered configuration", ""},
		{"refuses", map[string]string{"nginx": "echo unknown directive; exit 1"}, Options{}, "", "the rendered configuration: nginx -t refuses it:\nunknown directive"},
		{"own, not installed", nil, Options{NginxConfig: own}, "the configuration was not tried", "fault"},
		{"own", map[string]string{"nginx": "true"}, Options{NginxConfig: own}, own + ": nginx accepts it", "fault"},
		{"own, refused", map[string]string{"nginx": "exit 1"}, Options{NginxConfig: own}, "", own + ": nginx -t refuses it"},
		{"own, absent", nil, Options{NginxConfig: own + ".absent"}, "", "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			says, err := checked(t, text, c.programs, c.o)
			if !strings.Contains(says, c.says) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("says %s\nand ends with %v", says, err)
			}
		})
	}
}
