package rig

import (
	"bytes"
	"fmt"
	"net"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/test/proxies"
)

// HAProxies are the releases of HAProxy.
func HAProxies(t *testing.T) (list []Release) {
	bins := proxies.HAProxies(t)
	for i, bin := range bins {
		old := bin.Version == "2.6"
		list = append(list, Release{
			Name: "haproxy-" + bin.Version, Version: bin.Version, Newest: i == len(bins)-1, Bin: bin,
			Can: Abilities{
				NoticesLeaving: old, NoticesLeaving2: true, LosesHeldCheaply: !old, Queues: true, Checks: true, Runtime: true,
				ReadsModel: true, AnswersBroken: !old, NewConnections: true,
			},
			Lay: func(s *Site) Proxy {
				return &HAProxy{Site: s, Spoe: filepath.Join(s.Dir, "spoe.sock"), Runtime: filepath.Join(s.Dir, "haproxy.sock")}
			},
		})
	}
	return list
}

// HAProxy is the HAProxy of a site.
type HAProxy struct {
	*Site
	Proc    *proxies.Proc
	Spoe    string // path of the agent's socket
	Runtime string // path of the runtime API
}

// HAProxy is the site's proxy, which is an HAProxy.
func (s *Site) HAProxy() *HAProxy { return s.Proxy.(*HAProxy) }

// Listen implements Proxy.
func (h *HAProxy) Listen() string { return fmt.Sprintf("spoe: \"unix://%s\"", h.Spoe) }

// Section implements Proxy.
func (h *HAProxy) Section() string {
	return fmt.Sprintf("haproxy: {runtime_api: \"unix://%s\", bind: %q, poll: 100ms, retry_sent: true%s}", h.Runtime, h.Front, processingTimeout)
}

// installed is where render expects its SPOE file to be installed; the tests
// lay it beside HAProxy's configuration instead.
const installed = "/etc/pointsman/pointsman-spoe.conf"

// Render implements Proxy.
func (h *HAProxy) Render(args ...string) (files map[string]string, printed string) {
	h.T.Helper()
	files, printed = h.renderWith(append([]string{"haproxy", "--version", h.Version}, args...)...)
	beside := func(text string) string { return strings.ReplaceAll(text, installed, filepath.Base(installed)) }
	for name, text := range files {
		files[name] = beside(text)
	}
	return files, beside(printed)
}

// Start implements Proxy.
func (h *HAProxy) Start() {
	h.T.Helper()
	files, _ := h.Render()
	cfg, spoe := files["haproxy.cfg"], files["pointsman-spoe.conf"]
	bind := "    bind " + h.Front + "\n"
	if !strings.Contains(cfg, bind) || !strings.Contains(cfg, filepath.Base(installed)) {
		h.T.Fatalf("rendered configuration:\n%s", cfg)
	}
	cfg = strings.Replace(cfg, bind, bind+"    bind "+h.Front2+" proto h2\n", 1)
	h.Proc = proxies.Start(h.T, h.Bin, cfg, proxies.File{Name: filepath.Base(installed), Text: spoe})
}

// AwaitAgent waits until HAProxy has found the agent up by a check.
func (h *HAProxy) AwaitAgent() {
	h.T.Helper()
	Eventually(h.T, 10*time.Second, "HAProxy finds the agent up", func() (bool, string) {
		for line := range strings.Lines(h.Command("show stat pointsman-agent 4 -1")) {
			f := strings.Split(line, ",")
			if len(f) > 36 && f[1] == "agent" {
				return f[17] == "UP" && strings.Contains(f[36], "OK") && !strings.HasPrefix(f[36], "*"), f[17] + " " + f[36]
			}
		}
		return false, "no such server"
	})
}

// Reload implements Proxy.
func (h *HAProxy) Reload() { h.T.Helper(); h.Proc.Reload() }

// Crash kills HAProxy and starts it again, as a supervisor does.
func (h *HAProxy) Crash() { h.T.Helper(); h.Proc.Kill(); h.Proc.Restart() }

// Command sends a command to the runtime API and returns the answer.
func (h *HAProxy) Command(text string) string {
	h.T.Helper()
	var c net.Conn
	Eventually(h.T, 5*time.Second, "the runtime API is there", func() (bool, string) { // its name comes last, as HAProxy starts
		var err error
		c, err = net.DialTimeout("unix", h.Runtime, 2*time.Second)
		return err == nil, fmt.Sprint(err)
	})
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write([]byte(text + "\n")); err != nil {
		h.T.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(c); err != nil {
		h.T.Fatal(err)
	}
	return b.String()
}

// State sets the state of a server at run time: ready, drain or maint.
func (h *HAProxy) State(replica, state string) {
	h.T.Helper()
	h.Command("set server " + Pool + "/" + replica + " state " + state)
}

// Serving implements Proxy.
func (h *HAProxy) Serving() []string { return []string{h.Proc.Pid()} }

// Questions implements Proxy.
func (h *HAProxy) Questions(m map[string]float64) int { return int(m["pointsman_spoe_messages_total"]) }

// Troubles implements Proxy.
func (h *HAProxy) Troubles() []string {
	return []string{"pointsman_spoe_malformed_total", "pointsman_spoe_panics_total", "pointsman_spoe_dropped_variables_total", "pointsman_spoe_refused_total"}
}

// Forged implements Proxy.
func (h *HAProxy) Forged() map[string]string { return nil }

// NoReplica implements Proxy.
func (h *HAProxy) NoReplica() int { return 503 }

// CountsGarbage implements Proxy.
func (h *HAProxy) CountsGarbage() []string {
	return []string{"pointsman_spoe_malformed_total", `pointsman_feed_malformed_total{proxy="haproxy"}`}
}

// haproxyUser is the configuration of somebody who serves a web site and, in the
// form that takes their own backends, an LLM. The lines that are printed are
// pasted at its marks.
const haproxyUser = `global
    maxconn 1000
    stats socket %[1]s mode 660 level admin expose-fd listeners
    #paste global

defaults
    mode http
    log global
    log-format "%%ci %%ST %%B"
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    #paste defaults

frontend web
    bind %[2]s
    http-request set-header X-Forwarded-Proto http
    acl is_static path_beg /static
    use_backend site if is_static
    #paste frontend
    default_backend site

backend site
    server s1 %[3]s
`

// haproxyBackends are the backends of a user who has some.
const haproxyBackends = `
backend %s
    balance roundrobin
    server l1 %s check
    server l2 %s check
    #paste backend %[1]s

backend second
    server q1 %[4]s
    #paste backend second
`

// Forms implements Proxy.
func (h *HAProxy) Forms() []string {
	forms := []string{"one-pool", "several-pools", "own-backends"}
	if h.Version == "3.2" {
		forms = append(forms, "live-feed") // its log-profile is what makes it optional
	}
	return forms
}

// Attach implements Proxy.
func (h *HAProxy) Attach(form, web string, e Attached) {
	h.T.Helper()
	files, printed := h.Render("--attach")
	cfg := fmt.Sprintf(haproxyUser, h.Runtime, h.Front, web)
	if form == "own-backends" {
		cfg += fmt.Sprintf(haproxyBackends, Pool, e.L1.Address, e.L2.Address, e.Q1.Address)
	}
	cfg = paste(h.T, cfg, printed, form == "live-feed")
	var extra []proxies.File
	for name, text := range files {
		extra = append(extra, proxies.File{Name: name, Text: text})
	}
	h.Proc = proxies.Start(h.T, h.Bin, cfg, extra...)
}

// StartWebsite starts what a user serves besides, and returns its host:port.
func StartWebsite(t testing.TB) string {
	s := httptest.NewServer(website)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}
