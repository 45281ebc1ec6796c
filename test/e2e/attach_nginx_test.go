package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/test/proxies"
)

// TestAttachNginx attaches to an nginx that serves, by the command alone: every
// request is then decided and its outcome heard, none fails when the agent dies,
// and detaching restores every byte.
func TestAttachNginx(t *testing.T) {
	for _, name := range []string{"plain", "auth-request", "debian", "own-logs"} {
		t.Run(name, func(t *testing.T) {
			list := nginxes(t)
			if name == "debian" || name == "own-logs" {
				list = list[len(list)-1:]
			}
			onEach(t, list, func(t *testing.T, r release) {
				t.Parallel()
				attachNginx(t, r, name)
			})
		})
	}
}

func attachNginx(t *testing.T, r release, name string) {
	s, engines := replicas(t, r, 2, "least_requests")
	fill := strings.NewReplacer("@front@", s.front, "@front2@", s.front2, "@front3@", freeAddress(t), "@web@", port(startWebsite(t)),
		"127.0.0.1:@e1@", engines[0].address, "127.0.0.1:@e2@", engines[1].address, "@dir@/", "", "user www-data;", "", "127.0.0.1:1 backup", "127.0.0.1:1 down")
	var conf string
	var more []proxies.File
	from := filepath.Join("../../attach/testdata/nginx", name)
	err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if rel := strings.TrimPrefix(path, from+"/"); rel == "nginx.conf" {
			conf = fill.Replace(string(text))
		} else {
			more = append(more, proxies.File{Name: rel, Text: fill.Replace(string(text))})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	n := s.nginx()
	n.conf = "pid /run/nginx.pid;\nerror_log /var/log/nginx/error.log;\n" + conf
	if strings.Contains(conf, "\npid ") {
		n.conf = conf
	}
	n.proc = proxies.StartNginx(t, r.bin, n.conf, more...)
	s.agent.start()
	client := newClient(4, true, false)
	defer client.CloseIdleConnections()
	s.serve(client, 4) // not asked about

	files := func() string {
		var b strings.Builder
		for _, f := range append(more, proxies.File{Name: "nginx.conf"}) {
			text, err := os.ReadFile(filepath.Join(n.proc.Dir, f.Name))
			fmt.Fprintf(&b, "==> %s %v\n%s", f.Name, err, text)
		}
		return b.String()
	}
	before := files()
	command := func(what string) string {
		cmd := exec.Command(binary, what, "nginx", "--nginx-config", filepath.Join(n.proc.Dir, "nginx.conf"),
			"--config", s.config(), "--out", filepath.Join(s.dir, "etc"), "--write")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", what, err, out)
		}
		return string(out)
	}
	command("attach")
	if again := command("attach"); !strings.Contains(again, "nothing to change") {
		t.Errorf("a second time: %s", again)
	}
	n.proc.Reload()
	const requests = 40
	s.awaitAsking(pool, func() { client.CloseIdleConnections(); s.serve(client, 4) }, 4)
	start := s.agent.settled(pool)
	by := s.serve(client, requests)
	p := s.agent.settled(pool)
	if p.Decisions-start.Decisions != requests || p.Outcomes["served"]-start.Outcomes["served"] != requests || p.FellOpen != 0 {
		t.Errorf("%d requests by %v: %+v, before %+v", requests, by, p, start)
	}
	s.untroubled()

	s.agent.kill()
	s.serve(client, 20)
	s.agent.start()
	eventually(t, 10*time.Second, "decisions come back", func() (bool, string) {
		s.serve(client, 2)
		p := s.agent.pool(pool)
		return p.Decisions >= 4, fmt.Sprintf("%+v", p)
	})

	command("detach")
	if after := files(); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	n.proc.Reload()
	s.serve(client, 4)
}

// port is that of an address.
func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// awaitAsking waits until no worker serves any more that does not ask, after a
// reload: all of n requests are decided.
func (s *site) awaitAsking(pool string, send func(), n int) {
	s.t.Helper()
	eventually(s.t, 10*time.Second, "only new workers serve", func() (bool, string) {
		before := s.agent.settled(pool)
		send()
		p := s.agent.settled(pool)
		return p.Decisions-before.Decisions == n, fmt.Sprintf("%+v", p)
	})
}
