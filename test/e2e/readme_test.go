package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pointsman/test/rig"
)

// TestNginxReadme follows the README's nginx part to the letter, with a folder
// that stands for the machine: its three commands attach to an nginx that serves.
func TestNginxReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, ok := strings.Cut(string(readme), "## Attach it to an nginx")
	_, part, ok2 := strings.Cut(part, "```sh\n")
	commands, _, ok3 := strings.Cut(part, "```")
	if !ok || !ok2 || !ok3 {
		t.Fatal("no such part")
	}
	r := rig.Nginxes(t)[0]
	o := rig.EngineOptions{Models: []string{rig.Model}}
	r1, r2 := rig.StartEngine(t, "r1", o), rig.StartEngine(t, "r2", o)
	s := rig.NewSite(t, r, "")
	conf := filepath.Join(s.Dir, "etc", "pointsman.yaml")
	s.Nginx().Run(strings.ReplaceAll(fmt.Sprintf(rig.NginxUser, s.Front, r1.Address, r2.Address, port(r1.Address)), "#paste location", "proxy_pass http://vllm;"))
	attach := func(line string) {
		t.Helper()
		more := []string{"--config", conf, "--out", filepath.Dir(conf), "--nginx-config", filepath.Join(s.Nginx().Proc.Dir, "nginx.conf")}
		if out, err := exec.Command(rig.Binary, append(strings.Fields(line)[1:], more...)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	steps := 0
	for line := range strings.Lines(commands) {
		steps++
		switch {
		case strings.HasPrefix(line, "pointsman attach"):
			attach(line)
			// Another agent may hold the usual addresses of this machine.
			text, err := os.ReadFile(conf)
			if err != nil {
				t.Fatal(err)
			}
			const usual = "nginx: unix:///run/pointsman/nginx.sock\n  spoe: off"
			own := fmt.Sprintf("nginx: unix://%s/nginx.sock\n  spoe: unix://%s/spoe.sock\n  feed: %s\n  admin: %s", s.Dir, s.Dir, s.Feed, s.Agent.Admin)
			if !strings.Contains(string(text), usual) {
				t.Fatalf("written from nginx's configuration:\n%s", text)
			}
			if err := os.WriteFile(conf, []byte(strings.Replace(string(text), usual, own, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			attach(line)
		case strings.Contains(line, "systemctl enable"):
			s.Agent.Config = conf
			s.Agent.Start()
		case strings.HasPrefix(line, "systemctl reload nginx"):
			s.Nginx().Reload()
		}
	}
	if steps != 3 {
		t.Errorf("%d commands, want 3:\n%s", steps, commands)
	}
	client := rig.NewClient(2, true, false)
	defer client.CloseIdleConnections()
	send := func() {
		client.CloseIdleConnections()
		for i := range 10 {
			c := rig.Call{Body: rig.Chat(rig.Model, 400, 4, i%2 == 0, i)}
			if err := c.Check(c.Do(client, s.Front)); err != nil {
				t.Error(err)
			}
		}
	}
	awaitAsking(s, "vllm", send, 10)
	before := s.Agent.Settled("vllm")
	send()
	if p := s.Agent.Settled("vllm"); p.Decisions-before.Decisions != 10 || p.Outcomes["served"]-before.Outcomes["served"] != 10 {
		t.Errorf("%+v, before %+v", p, before)
	}
}
