package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"pointsman/test/proxies"
)

// nginxes are the releases of nginx.
func nginxes(t *testing.T) (list []release) {
	bins := proxies.Nginxes(t)
	for i, bin := range bins {
		list = append(list, release{
			name: "nginx-" + bin.Version, version: bin.Version, newest: i == len(bins)-1, bin: bin,
			can: abilities{
				noticesLeaving: true, noticesLeaving2: true, losesHeldCheaply: true, wholeBody: true,
				knowsWhoBroke: true, answersBroken: true, explainsBroken: true, triesOthers: true, retriesSent: true,
			},
			lay: func(s *site) proxy { return &nginx{site: s, socket: filepath.Join(s.dir, "nginx.sock")} },
		})
	}
	return list
}

// nginx is the nginx of a site.
type nginx struct {
	*site
	proc   *proxies.Nginx
	socket string // path of the agent's socket
	conf   string // that it runs
}

// nginx is the site's proxy, which is an nginx.
func (s *site) nginx() *nginx { return s.proxy.(*nginx) }

func (n *nginx) listen() string { return fmt.Sprintf("spoe: off, nginx: \"unix://%s\"", n.socket) }

func (n *nginx) section() string {
	return fmt.Sprintf("nginx: {bind: %q, retry_sent: false%s}", n.front, processingTimeout)
}

func (n *nginx) render(args ...string) (files map[string]string, printed string) {
	n.t.Helper()
	return n.renderWith(append([]string{"nginx"}, args...)...)
}

func (n *nginx) start() {
	n.t.Helper()
	n.run(n.complete())
}

// complete is the rendered configuration with a second address for HTTP/2.
func (n *nginx) complete() string {
	n.t.Helper()
	files, _ := n.render()
	conf, listen := files["nginx.conf"], "        listen "+n.front+";\n"
	if !strings.Contains(conf, listen) {
		n.t.Fatalf("rendered configuration:\n%s", conf)
	}
	return strings.Replace(conf, listen, listen+"        listen "+n.front2+" http2;\n", 1)
}

func (n *nginx) run(conf string) {
	n.t.Helper()
	n.conf = conf
	n.proc = proxies.StartNginx(n.t, n.bin, conf)
}

// awaitAgent has nothing to wait for: nginx asks an agent that it does not know
// to have failed.
func (n *nginx) awaitAgent() {}

func (n *nginx) reload() { n.t.Helper(); n.proc.Reload() }

// reloadRendered has nginx take what is rendered now.
func (n *nginx) reloadRendered() {
	n.t.Helper()
	n.conf = n.complete()
	n.proc.Write(proxies.File{Name: "nginx.conf", Text: n.conf})
	n.proc.Reload()
}

// crash kills the workers; the master starts others.
func (n *nginx) crash() { n.t.Helper(); n.proc.KillWorkers() }

func (n *nginx) questions(m map[string]float64) int {
	return int(m[`pointsman_decision_seconds_count{proxy="nginx"}`])
}

func (n *nginx) troubles() []string {
	return []string{"pointsman_nginx_panics_total", "pointsman_nginx_malformed_total", "pointsman_nginx_refused_total",
		"pointsman_nginx_clipped_bodies_total", "pointsman_nginx_body_bytes", "pointsman_feed_dropped_total"}
}

func (n *nginx) forged() map[string]string {
	return map[string]string{"X-Accel-Redirect": "@pm_broken"}
}

func (n *nginx) noReplica() int { return 502 }

func (n *nginx) countsGarbage() []string {
	return []string{"pointsman_nginx_malformed_total", `pointsman_feed_malformed_total{proxy="nginx"}`}
}

// nginxUser is the configuration of somebody who serves a web site and an LLM,
// with the directives that such people have. The lines that are printed are
// pasted at its marks.
const nginxUser = `
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

func (n *nginx) forms() []string { return []string{"one-pool", "several-pools"} }

func (n *nginx) attach(_, web string, e attached) {
	n.t.Helper()
	etc := filepath.Join(n.dir, "etc")
	_, printed := n.render("--attach", "--out", etc, "--nginx-dir", etc)
	printed = strings.ReplaceAll(printed, "$pm_own pm~llama;", "$pm_own vllm;") // what stood in their proxy_pass
	n.run(pasteNginx(n.t, fmt.Sprintf(nginxUser, n.front, e.l1.address, e.l2.address, web), printed))
}

// pasteNginx puts what render printed into conf.
func pasteNginx(t testing.TB, conf, printed string) string {
	t.Helper()
	if n := len(head.FindAllString(printed, -1)); n != 4 {
		t.Fatalf("%d parts to paste, want 4:\n%s", n, printed)
	}
	return paste(t, conf, printed, false)
}
