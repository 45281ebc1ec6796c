package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

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
	r := nginxes(t)[0]
	o := engineOptions{Models: []string{"meta-llama/Llama-3.1-8B-Instruct"}}
	r1, r2 := startEngine(t, "r1", o), startEngine(t, "r2", o)
	s := newSite(t, r, "")
	root := strings.NewReplacer(
		"/run/pointsman", s.dir, "/etc/", s.dir+"/etc/", "/usr/", s.dir+"/usr/",
		"10.0.0.1:8000", r1.address, "10.0.0.2:8000", r2.address,
	)
	// What the machine has already: another agent may hold the usual ports.
	own := fmt.Sprintf("spoe: \"unix://%s/spoe.sock\", feed: %q, admin: %q}", s.dir, s.feed, s.agent.admin)
	conf := strings.Replace(root.Replace(fence("yaml")), "nginx.sock}", "nginx.sock, "+own, 1)
	if !strings.Contains(conf, own) {
		t.Fatalf("the README's configuration:\n%s", conf)
	}
	for path, text := range map[string]string{
		"/etc/pointsman/pointsman.yaml": conf,
		"/etc/nginx/nginx.conf":         fmt.Sprintf(nginxUser, s.front, r1.address, r2.address, r1.address),
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
			text := pasteNginx(t, fmt.Sprintf(nginxUser, s.front, r1.address, r2.address, r1.address), printed)
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
	s.nginx().run(string(text)) // reload nginx
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
