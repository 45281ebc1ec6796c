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
	"pointsman/test/rig"
)

// TestAttachNginx attaches to an nginx that serves, by the command alone: every
// request is then decided and its outcome heard, none fails when the agent dies,
// and detaching restores every byte.
func TestAttachNginx(t *testing.T) {
	for _, name := range []string{"plain", "auth-request", "debian", "own-logs"} {
		t.Run(name, func(t *testing.T) {
			list := rig.Nginxes(t)
			if name == "debian" || name == "own-logs" {
				list = list[len(list)-1:]
			}
			rig.OnEach(t, list, func(t *testing.T, r rig.Release) {
				t.Parallel()
				attachNginx(t, r, name)
			})
		})
	}
}

func attachNginx(t *testing.T, r rig.Release, name string) {
	s, engines := rig.Replicas(t, r, 2, "least_requests")
	fill := strings.NewReplacer("@front@", s.Front, "@front2@", s.Front2, "@front3@", rig.FreeAddress(t), "@web@", port(rig.StartWebsite(t)),
		"127.0.0.1:@e1@", engines[0].Address, "127.0.0.1:@e2@", engines[1].Address, "@dir@/", "", "user www-data;", "", "127.0.0.1:1 backup", "127.0.0.1:1 down")
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
	n := s.Nginx()
	n.Conf = "pid /run/nginx.pid;\nerror_log /var/log/nginx/error.log;\n" + conf
	if strings.Contains(conf, "\npid ") {
		n.Conf = conf
	}
	n.Proc = proxies.StartNginx(t, r.Bin, n.Conf, more...)
	s.Agent.Start()
	client := rig.NewClient(4, true, false)
	defer client.CloseIdleConnections()
	s.Serve(client, 4) // not asked about

	files := func() string {
		var b strings.Builder
		for _, f := range append(more, proxies.File{Name: "nginx.conf"}) {
			text, err := os.ReadFile(filepath.Join(n.Proc.Dir, f.Name))
			fmt.Fprintf(&b, "==> %s %v\n%s", f.Name, err, text)
		}
		return b.String()
	}
	before := files()
	command := func(what string) string {
		cmd := exec.Command(rig.Binary, what, "nginx", "--nginx-config", filepath.Join(n.Proc.Dir, "nginx.conf"),
			"--config", s.Config(), "--out", filepath.Join(s.Dir, "etc"), "--write")
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
	n.Proc.Reload()
	const requests = 40
	awaitAsking(s, rig.Pool, func() { client.CloseIdleConnections(); s.Serve(client, 4) }, 4)
	start := s.Agent.Settled(rig.Pool)
	by := s.Serve(client, requests)
	p := s.Agent.Settled(rig.Pool)
	if p.Decisions-start.Decisions != requests || p.Outcomes["served"]-start.Outcomes["served"] != requests || p.FellOpen != 0 {
		t.Errorf("%d requests by %v: %+v, before %+v", requests, by, p, start)
	}
	s.Untroubled()

	s.Agent.Kill()
	s.Serve(client, 20)
	s.Agent.Start()
	rig.Eventually(t, 10*time.Second, "decisions come back", func() (bool, string) {
		s.Serve(client, 2)
		p := s.Agent.Pool(rig.Pool)
		return p.Decisions >= 4, fmt.Sprintf("%+v", p)
	})

	command("detach")
	if after := files(); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	n.Proc.Reload()
	s.Serve(client, 4)
}

// port is that of an address.
func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// awaitAsking waits until no worker serves any more that does not ask, after a
// reload: all of n requests are decided.
func awaitAsking(s *rig.Site, pool string, send func(), n int) {
	s.T.Helper()
	rig.Eventually(s.T, 10*time.Second, "only new workers serve", func() (bool, string) {
		before := s.Agent.Settled(pool)
		send()
		p := s.Agent.Settled(pool)
		return p.Decisions-before.Decisions == n, fmt.Sprintf("%+v", p)
	})
}
