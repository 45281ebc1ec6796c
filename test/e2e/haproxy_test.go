package e2e

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

// haproxies are the releases of HAProxy.
func haproxies(t *testing.T) (list []release) {
	bins := proxies.HAProxies(t)
	for i, bin := range bins {
		old := bin.Version == "2.6"
		list = append(list, release{
			name: "haproxy-" + bin.Version, version: bin.Version, newest: i == len(bins)-1, bin: bin,
			can: abilities{
				noticesLeaving: old, noticesLeaving2: true, losesHeldCheaply: !old, queues: true, checks: true, runtime: true,
				readsModel: true, answersBroken: !old,
			},
			lay: func(s *site) proxy {
				return &haproxy{site: s, spoe: filepath.Join(s.dir, "spoe.sock"), runtime: filepath.Join(s.dir, "haproxy.sock")}
			},
		})
	}
	return list
}

// haproxy is the HAProxy of a site.
type haproxy struct {
	*site
	proc    *proxies.Proc
	spoe    string // path of the agent's socket
	runtime string // path of the runtime API
}

// haproxy is the site's proxy, which is an HAProxy.
func (s *site) haproxy() *haproxy { return s.proxy.(*haproxy) }

func (h *haproxy) listen() string { return fmt.Sprintf("spoe: \"unix://%s\"", h.spoe) }

func (h *haproxy) section() string {
	return fmt.Sprintf("haproxy: {runtime_api: \"unix://%s\", bind: %q, poll: 100ms%s}", h.runtime, h.front, processingTimeout)
}

// installed is where render expects its SPOE file to be installed; the tests
// lay it beside HAProxy's configuration instead.
const installed = "/etc/pointsman/pointsman-spoe.conf"

func (h *haproxy) render(args ...string) (files map[string]string, printed string) {
	h.t.Helper()
	files, printed = h.renderWith(append([]string{"haproxy", "--version", h.version}, args...)...)
	beside := func(text string) string { return strings.ReplaceAll(text, installed, filepath.Base(installed)) }
	for name, text := range files {
		files[name] = beside(text)
	}
	return files, beside(printed)
}

func (h *haproxy) start() {
	h.t.Helper()
	files, _ := h.render()
	cfg, spoe := files["haproxy.cfg"], files["pointsman-spoe.conf"]
	bind := "    bind " + h.front + "\n"
	if !strings.Contains(cfg, bind) || !strings.Contains(cfg, filepath.Base(installed)) {
		h.t.Fatalf("rendered configuration:\n%s", cfg)
	}
	cfg = strings.Replace(cfg, bind, bind+"    bind "+h.front2+" proto h2\n", 1)
	h.proc = proxies.Start(h.t, h.bin, cfg, proxies.File{Name: filepath.Base(installed), Text: spoe})
}

// awaitAgent waits until HAProxy has found the agent up by a check.
func (h *haproxy) awaitAgent() {
	h.t.Helper()
	eventually(h.t, 10*time.Second, "HAProxy finds the agent up", func() (bool, string) {
		for line := range strings.Lines(h.command("show stat pointsman-agent 4 -1")) {
			f := strings.Split(line, ",")
			if len(f) > 36 && f[1] == "agent" {
				return f[17] == "UP" && strings.Contains(f[36], "OK") && !strings.HasPrefix(f[36], "*"), f[17] + " " + f[36]
			}
		}
		return false, "no such server"
	})
}

func (h *haproxy) reload() { h.t.Helper(); h.proc.Reload() }

// crash kills HAProxy and starts it again, as a supervisor does.
func (h *haproxy) crash() { h.t.Helper(); h.proc.Kill(); h.proc.Restart() }

// command sends a command to the runtime API and returns the answer.
func (h *haproxy) command(text string) string {
	h.t.Helper()
	var c net.Conn
	eventually(h.t, 5*time.Second, "the runtime API is there", func() (bool, string) { // its name comes last, as HAProxy starts
		var err error
		c, err = net.DialTimeout("unix", h.runtime, 2*time.Second)
		return err == nil, fmt.Sprint(err)
	})
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write([]byte(text + "\n")); err != nil {
		h.t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(c); err != nil {
		h.t.Fatal(err)
	}
	return b.String()
}

// state sets the state of a server at run time: ready, drain or maint.
func (h *haproxy) state(replica, state string) {
	h.t.Helper()
	h.command("set server " + pool + "/" + replica + " state " + state)
}

func (h *haproxy) questions(m map[string]float64) int { return int(m["pointsman_spoe_messages_total"]) }

func (h *haproxy) troubles() []string {
	return []string{"pointsman_spoe_malformed_total", "pointsman_spoe_panics_total", "pointsman_spoe_dropped_variables_total", "pointsman_spoe_refused_total"}
}

func (h *haproxy) forged() map[string]string { return nil }

func (h *haproxy) noReplica() int { return 503 }

func (h *haproxy) countsGarbage() []string {
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
    option httplog
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

func (h *haproxy) forms() []string {
	forms := []string{"one-pool", "several-pools", "own-backends"}
	if h.version == "3.2" {
		forms = append(forms, "live-feed") // its log-profile is what makes it optional
	}
	return forms
}

func (h *haproxy) attach(form, web string, e attached) {
	h.t.Helper()
	files, printed := h.render("--attach")
	cfg := fmt.Sprintf(haproxyUser, h.runtime, h.front, web)
	if form == "own-backends" {
		cfg += fmt.Sprintf(haproxyBackends, pool, e.l1.address, e.l2.address, e.q1.address)
	}
	cfg = paste(h.t, cfg, printed, form == "live-feed")
	var extra []proxies.File
	for name, text := range files {
		extra = append(extra, proxies.File{Name: name, Text: text})
	}
	h.proc = proxies.Start(h.t, h.bin, cfg, extra...)
}

// startWebsite starts what a user serves besides, and returns its host:port.
func startWebsite(t testing.TB) string {
	s := httptest.NewServer(website)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}
