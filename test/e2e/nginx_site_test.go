package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

// everyNginx runs f as a subtest for each nginx.
func everyNginx(t *testing.T, f func(t *testing.T, bin proxies.Binary)) {
	for _, bin := range proxies.Nginxes(t) {
		t.Run(bin.Version, func(t *testing.T) { f(t, bin) })
	}
}

// nginxSite is a site whose proxy is an nginx.
type nginxSite struct {
	*site
	nginx *proxies.Nginx
}

// newNginxSite lays out a site as newSite does. more are further top-level keys
// of the agent's configuration, in YAML's block form.
func newNginxSite(t testing.TB, bin proxies.Binary, pools string, more ...string) *nginxSite {
	t.Helper()
	s := &nginxSite{site: newSite(t, bin, pools)}
	s.configure(fmt.Sprintf(`listen: {spoe: off, nginx: "unix://%s/nginx.sock", feed: "%s", admin: "%s"}
nginx: {bind: "%s", processing_timeout: 1s, retry_sent: false}
`, s.dir, s.feed, s.agent.admin, s.front) + strings.Join(more, "\n") + "\n" + pools)
	return s
}

// nginxReplicas is a site with one pool of n replicas, which take turns, not
// started.
func nginxReplicas(t testing.TB, bin proxies.Binary, n int, more ...string) (*nginxSite, []*engine) {
	t.Helper()
	var engines []*engine
	for i := range n {
		engines = append(engines, startEngine(t, fmt.Sprintf("r%d", i+1), fakevllm.Options{Models: []string{model}}))
	}
	return newNginxSite(t, bin, fmt.Sprintf("pools: {%s: {models: [%s], policy: round_robin, max_requests: 0, replicas: %s}}\n", pool, model, replicasYAML(engines...)), more...), engines
}

// render runs `pointsman render nginx` and returns the files it writes and what
// it prints.
func (s *nginxSite) render(args ...string) (files map[string]string, printed string) {
	s.t.Helper()
	out := s.t.TempDir()
	cmd := exec.Command(binary, append([]string{"render", "nginx", "--config", s.config(), "--out", out}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("render: %v\n%s", err, stderr.String())
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		s.t.Fatal(err)
	}
	files = map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(out, e.Name()))
		if err != nil {
			s.t.Fatal(err)
		}
		files[e.Name()] = string(b)
	}
	return files, stdout.String()
}

// startProxy starts nginx with the complete rendered configuration, to which it
// adds a second port for HTTP/2.
func (s *nginxSite) startProxy() {
	s.t.Helper()
	files, _ := s.render()
	conf, listen := files["nginx.conf"], "        listen "+s.front+";\n"
	if !strings.Contains(conf, listen) {
		s.t.Fatalf("rendered configuration:\n%s", conf)
	}
	conf = strings.Replace(conf, listen, listen+"        listen "+s.front2+" http2;\n", 1)
	s.nginx = proxies.StartNginx(s.t, s.bin, conf)
}

// start starts agent and nginx.
func (s *nginxSite) start() {
	s.t.Helper()
	s.agent.start()
	s.startProxy()
}

// quiet checks that no counter of trouble with nginx has moved.
func (s *nginxSite) quiet() {
	s.t.Helper()
	series := s.agent.metrics()
	for _, name := range []string{"pointsman_nginx_panics_total", "pointsman_nginx_malformed_total", "pointsman_nginx_refused_total",
		"pointsman_nginx_clipped_bodies_total", "pointsman_nginx_body_bytes", `pointsman_feed_dropped_total{proxy="nginx"}`, `pointsman_feed_malformed_total{proxy="nginx"}`,
		fmt.Sprintf("pointsman_reservations_expired_total{pool=%q}", pool),
		fmt.Sprintf("pointsman_reservations_replaced_total{pool=%q}", pool)} {
		if v, ok := series[name]; !ok || v != 0 {
			s.t.Errorf("%s is %v (there: %v), want 0", name, v, ok)
		}
	}
}

// count is a counter of the pool.
func (s *nginxSite) count(name string) int {
	s.t.Helper()
	v, ok := s.agent.metrics()[fmt.Sprintf("pointsman_%s{pool=%q}", name, pool)]
	if !ok {
		s.t.Errorf("no metric pointsman_%s", name)
	}
	return int(v)
}

// idle checks that nothing is left on any replica.
func (s *nginxSite) idle(p poolStatus) {
	s.t.Helper()
	for _, r := range p.Replicas {
		if r.InFlight != 0 || r.Waiting != 0 || r.Tokens != 0 {
			s.t.Errorf("at the end: %+v", r)
		}
	}
}
