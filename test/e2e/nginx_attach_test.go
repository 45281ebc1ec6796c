package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

// nginxUsers is the configuration of somebody who serves a web site and an LLM,
// with the directives that such people have. The marks say where the printed
// lines go.
const nginxUsers = `
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
        location / { return 200 "the site"; }
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

// pasteNginx puts the snippets of printed into conf, as the heads say.
func pasteNginx(t *testing.T, conf, printed string) string {
	t.Helper()
	heads := head.FindAllStringSubmatchIndex(printed, -1)
	if len(heads) != 4 {
		t.Fatalf("printed:\n%s", printed)
	}
	for i, at := range heads {
		end := len(printed)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		if at[4] >= 0 {
			continue // optional
		}
		mark := "    #paste " + printed[at[2]:at[3]] + "\n"
		if !strings.Contains(conf, mark) {
			t.Fatalf("no section %q to paste into", printed[at[2]:at[3]])
		}
		conf = strings.ReplaceAll(conf, mark, printed[at[1]:end]+"\n")
	}
	return conf
}

// TestNginxAttach pastes what `render nginx --attach` prints, as it says, into a
// configuration that exists. Requests are decided, access rules hold, the user's
// own log goes on, and other traffic is left alone.
func TestNginxAttach(t *testing.T) {
	everyNginx(t, func(t *testing.T, bin proxies.Binary) {
		t.Parallel()
		s, engines := nginxReplicas(t, bin, 2)
		etc := filepath.Join(s.dir, "etc")
		_, printed := s.render("--attach", "--out", etc, "--nginx-dir", etc)
		printed = strings.ReplaceAll(printed, "$pm_own pm~llama;", "$pm_own vllm;") // what stood in their proxy_pass
		conf := fmt.Sprintf(nginxUsers, s.front, engines[0].address, engines[1].address)
		conf = pasteNginx(t, conf, printed)
		s.nginx = proxies.StartNginx(t, bin, conf)
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		s.serve(client, 10) // without the agent, by their own upstream
		s.agent.start()
		eventually(t, 10*time.Second, "nginx asks", func() (bool, string) { // it leaves alone what failed for two seconds
			s.serve(client, 1)
			return s.agent.pool(pool).Decisions > 0, "no decision"
		})
		before := s.agent.settled(pool)
		if by := s.serve(client, 20); by["r1"] == 0 || by["r2"] == 0 {
			t.Errorf("served by %v", by)
		}
		p := s.agent.settled(pool)
		if p.Decisions-before.Decisions != 20 || p.Outcomes["served"]-before.Outcomes["served"] != 20 {
			t.Errorf("%+v", p)
		}
		if a := (call{method: "GET", path: "/x"}).do(client, s.front); a.status != 200 || string(a.body) != "the site" {
			t.Errorf("the site: %d %s %v", a.status, a.body, a.err)
		}
		for path, method := range map[string]string{"/private/v1/chat/completions": "POST", "/v1/chat/completions": "PUT"} {
			if a := (call{method: method, path: path, body: small(false).body}).do(client, s.front); a.status != http.StatusForbidden {
				t.Errorf("%s %s: %d", method, path, a.status)
			}
		}
		big := call{body: chat(model, 2_000_000, 2, true, 3), chunked: true}
		if err := big.check(big.do(client, s.front)); err != nil {
			t.Error(err)
		}
		log, err := os.ReadFile(filepath.Join(s.nginx.Dir, "access.log"))
		if err != nil || strings.Count(string(log), "POST /v1/chat/completions HTTP/1.1\" 200") < 31 || !strings.Contains(string(log), "GET /x ") {
			t.Errorf("%v, their own log:\n%s", err, log)
		}
		s.quiet()

		// check finds nothing missing, unless something is.
		check := func() (string, error) {
			cmd := exec.Command(binary, "check", "--config", s.config(), "--nginx-config", filepath.Join(s.nginx.Dir, "nginx.conf"))
			cmd.Env = append(os.Environ(), "PATH=/nowhere") // whose nginx it is does not matter here
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		if out, err := check(); err != nil {
			t.Errorf("check: %v\n%s", err, out)
		}
		s.nginx.Write(proxies.File{Name: "nginx.conf", Text: strings.Replace(conf, "client_max_body_size 50m;", "access_log off;", 1)})
		if out, err := check(); err == nil || !strings.Contains(out, "this access_log stands in the place") || !strings.Contains(out, "no client_max_body_size") {
			t.Errorf("check: %v\n%s", err, out)
		}
	})
}

// TestNginxCheck has check try what is rendered with the nginx in the path.
func TestNginxCheck(t *testing.T) {
	bin := proxies.Nginxes(t)[0]
	s, _ := nginxReplicas(t, bin, 2)
	cmd := exec.Command(binary, "check", "--config", s.config())
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "nginx: accepts the rendered configuration") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestNginxReadme follows the README's nginx part to the letter, in a folder that
// stands for the machine: its configuration with the engines' addresses, its
// commands, the lines pasted as they say.
func TestNginxReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, ok := strings.Cut(string(readme), "## Attach it to an nginx")
	if !ok {
		t.Fatal("no such part")
	}
	fence := func(language string) string {
		t.Helper()
		_, rest, ok := strings.Cut(part, "```"+language+"\n")
		block, _, ok2 := strings.Cut(rest, "```")
		if !ok || !ok2 {
			t.Fatalf("no block of %s", language)
		}
		return block
	}
	bin := proxies.Nginxes(t)[0]
	o := fakevllm.Options{Models: []string{"meta-llama/Llama-3.1-8B-Instruct"}}
	r1, r2 := startEngine(t, "r1", o), startEngine(t, "r2", o)
	s := &nginxSite{site: newSite(t, bin, "")}
	root := strings.NewReplacer(
		"/run/pointsman", s.dir, "/etc/", s.dir+"/etc/", "/usr/", s.dir+"/usr/",
		"10.0.0.1:8000", r1.address, "10.0.0.2:8000", r2.address,
	)
	// What the machine has already: another agent may hold the usual ports.
	own := fmt.Sprintf("spoe: \"unix://%s\", feed: %q, admin: %q}", s.spoe(), s.feed, s.agent.admin)
	conf := strings.Replace(root.Replace(fence("yaml")), "nginx.sock}", "nginx.sock, "+own, 1)
	if !strings.Contains(conf, own) {
		t.Fatalf("the README's configuration:\n%s", conf)
	}
	for path, text := range map[string]string{
		"/etc/pointsman/pointsman.yaml": conf,
		"/etc/nginx/nginx.conf":         fmt.Sprintf(nginxUsers, s.front, r1.address, r2.address),
	} {
		if err := os.MkdirAll(filepath.Dir(s.dir+path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.dir+path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(line string) string {
		t.Helper()
		words := strings.Fields(root.Replace(line))
		more := []string{"--config", s.dir + "/etc/pointsman/pointsman.yaml"}
		if words[1] == "render" {
			more = append(more, "--nginx-dir", s.dir+"/etc/pointsman")
		}
		cmd := exec.Command(binary, append(words[1:], more...)...)
		cmd.Env = append(os.Environ(), "PATH=/nowhere")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
	for line := range strings.Lines(fence("sh")) {
		switch {
		case strings.HasPrefix(line, "pointsman render"):
			printed := run(line)
			text := pasteNginx(t, fmt.Sprintf(nginxUsers, s.front, r1.address, r2.address), printed)
			if err := os.WriteFile(s.dir+"/etc/nginx/nginx.conf", []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		case strings.HasPrefix(line, "pointsman check"):
			run(line)
		case strings.HasPrefix(line, "systemctl enable"):
			s.agent.config = s.dir + "/etc/pointsman/pointsman.yaml"
			s.agent.start()
		}
	}
	text, err := os.ReadFile(s.dir + "/etc/nginx/nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	s.nginx = proxies.StartNginx(t, bin, string(text)) // reload nginx
	client := newClient(2, true, false)
	defer client.CloseIdleConnections()
	for i := range 10 {
		c := call{body: chat(o.Models[0], 400, 4, i%2 == 0, i)}
		if err := c.check(c.do(client, s.front)); err != nil {
			t.Error(err)
		}
	}
	if p := s.agent.settled("llama"); p.Decisions != 10 || p.Outcomes["served"] != 10 {
		t.Errorf("%+v", p)
	}
}
