package rig

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"pointsman/test/proxies"
)

// Nginxes are the releases of nginx.
func Nginxes(t *testing.T) (list []Release) {
	bins := proxies.Nginxes(t)
	for i, bin := range bins {
		list = append(list, Release{
			Name: "nginx-" + bin.Version, Version: bin.Version, Newest: i == len(bins)-1, Bin: bin,
			Can: Abilities{
				NoticesLeaving: true, NoticesLeaving2: true, LosesHeldCheaply: true, WholeBody: true,
				KnowsWhoBroke: true, AnswersBroken: true, ExplainsBroken: true, TriesOthers: true,
			},
			Lay: func(s *Site) Proxy { return &Nginx{Site: s, Socket: filepath.Join(s.Dir, "nginx.sock")} },
		})
	}
	return list
}

// Nginx is the nginx of a site.
type Nginx struct {
	*Site
	Proc   *proxies.Nginx
	Socket string // path of the agent's socket
	Conf   string // that it runs
}

// Nginx is the site's proxy, which is an nginx.
func (s *Site) Nginx() *Nginx { return s.Proxy.(*Nginx) }

// Listen implements Proxy.
func (n *Nginx) Listen() string { return fmt.Sprintf("spoe: off, nginx: \"unix://%s\"", n.Socket) }

// Section implements Proxy.
func (n *Nginx) Section() string {
	return fmt.Sprintf("nginx: {bind: %q, retry_sent: true%s}", n.Front, processingTimeout)
}

// Render implements Proxy.
func (n *Nginx) Render(args ...string) (files map[string]string, printed string) {
	n.T.Helper()
	return n.renderWith(append([]string{"nginx"}, args...)...)
}

// Start implements Proxy.
func (n *Nginx) Start() {
	n.T.Helper()
	n.Run(n.complete())
}

// complete is the rendered configuration with a second address for HTTP/2.
func (n *Nginx) complete() string {
	n.T.Helper()
	files, _ := n.Render()
	conf, listen := files["nginx.conf"], "        listen "+n.Front+";\n"
	if !strings.Contains(conf, listen) {
		n.T.Fatalf("rendered configuration:\n%s", conf)
	}
	return strings.Replace(conf, listen, listen+"        listen "+n.Front2+" http2;\n", 1)
}

// Run starts it with a configuration.
func (n *Nginx) Run(conf string) {
	n.T.Helper()
	n.Conf = conf
	n.Proc = proxies.StartNginx(n.T, n.Bin, conf)
}

// AwaitAgent has nothing to wait for: nginx asks an agent that it does not know
// to have failed.
func (n *Nginx) AwaitAgent() {}

// Reload implements Proxy.
func (n *Nginx) Reload() { n.T.Helper(); n.Proc.Reload() }

// ReloadRendered has nginx take what is rendered now.
func (n *Nginx) ReloadRendered() {
	n.T.Helper()
	n.Conf = n.complete()
	n.Proc.Write(proxies.File{Name: "nginx.conf", Text: n.Conf})
	n.Proc.Reload()
}

// Crash kills the workers; the master starts others.
func (n *Nginx) Crash() { n.T.Helper(); n.Proc.KillWorkers() }

// Serving implements Proxy.
func (n *Nginx) Serving() []string { return n.Proc.Workers() }

// Questions implements Proxy.
func (n *Nginx) Questions(m map[string]float64) int {
	return int(m[`pointsman_decision_seconds_count{proxy="nginx"}`])
}

// Troubles implements Proxy.
func (n *Nginx) Troubles() []string {
	return []string{"pointsman_nginx_panics_total", "pointsman_nginx_malformed_total", "pointsman_nginx_refused_total",
		"pointsman_nginx_clipped_bodies_total", "pointsman_nginx_body_bytes", "pointsman_feed_dropped_total"}
}

// Forged implements Proxy.
func (n *Nginx) Forged() map[string]string {
	return map[string]string{"X-Accel-Redirect": "@pm_broken"}
}

// NoReplica implements Proxy.
func (n *Nginx) NoReplica() int { return 502 }

// CountsGarbage implements Proxy.
func (n *Nginx) CountsGarbage() []string {
	return []string{"pointsman_nginx_malformed_total", `pointsman_feed_malformed_total{proxy="nginx"}`}
}

// NginxUser is the configuration of somebody who serves a web site and an LLM,
// with the directives that such people have. The lines that are printed are
// pasted at its marks.
const NginxUser = `
pid /run/nginx.pid;
error_log /var/log/nginx/error.log;
events {}
http {
    access_log /var/log/nginx/access.log combined;
    upstream vllm {
        least_conn;
        server %[2]s;
        server %[3]s;
    }
    #paste http
    server {
        listen %[1]s;
        client_max_body_size 50m;
        #paste server
        location / { proxy_pass http://%[4]s; }
        location /v1/ {
            limit_except GET POST HEAD { deny all; }
            proxy_set_header Host $host;
            proxy_http_version 1.1;
            proxy_read_timeout 3600s;
            proxy_buffering off;
            proxy_request_buffering off;
            client_body_buffer_size 16k;
            error_page 404 /not-found.html;
            #paste location
        }
        location /private/ {
            deny all;
            #paste location
        }
    }
}
`

// Forms implements Proxy.
func (n *Nginx) Forms() []string { return []string{"one-pool", "several-pools"} }

// Attach implements Proxy.
func (n *Nginx) Attach(_, web string, e Attached) {
	n.T.Helper()
	etc := filepath.Join(n.Dir, "etc")
	_, printed := n.Render("--attach", "--out", etc, "--nginx-dir", etc)
	printed = strings.ReplaceAll(printed, "$pm_own pm~llama;", "$pm_own vllm;") // what stood in their proxy_pass
	n.Run(pasteNginx(n.T, fmt.Sprintf(NginxUser, n.Front, e.L1.Address, e.L2.Address, web), printed))
}

// pasteNginx puts what render printed into conf.
func pasteNginx(t testing.TB, conf, printed string) string {
	t.Helper()
	if n := len(head.FindAllString(printed, -1)); n != 4 {
		t.Fatalf("%d parts to paste, want 4:\n%s", n, printed)
	}
	return paste(t, conf, printed, false)
}
