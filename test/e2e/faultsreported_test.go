package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"pointsman/test/inject"
	"pointsman/test/rig"
)

// each calls f for each fault with one of the configurations and one of the releases, in
// turn. A soak puts each fault into each configuration.
func each(list []rig.Release, faults []inject.Fault, names []string, f func(r rig.Release, fault inject.Fault, name string)) {
	for i, fault := range faults {
		for j, name := range names {
			if rig.Soak || j == i%len(names) {
				f(list[(i+j)%len(list)], fault, name)
			}
		}
	}
}

// TestFaultsReportedHAProxy puts the faults that people make into configurations that
// ask. The running agent says what is wrong, in its status and its log.
func TestFaultsReportedHAProxy(t *testing.T) {
	names := []string{"plain.cfg", "defaults-chain.cfg", "acls.cfg", "stick-tables.cfg", "rhel.cfg"}
	each(rig.HAProxies(t), inject.HAProxy, names, func(r rig.Release, fault inject.Fault, name string) {
		t.Run(fault.Name+"/"+name, func(t *testing.T) {
			t.Parallel()
			u := newHAProxyUser(t, r, name)
			defer u.client.CloseIdleConnections()
			u.attach()
			u.breakBy(fault)
			u.Agent.Start()
			u.reload()
			u.reports(fault, func() {
				u.client.CloseIdleConnections()
				// The body comes after the headers, as over a network.
				c := u.call(0)
				c.Body, c.Slow = rig.Chat(rig.Model, 60_000, 2, true, 5), 30*time.Millisecond
				u.serve(c, 4)
			})
		})
	})
}

// TestFaultsReportedNginx is the same for nginx, where the lines were put in by hand.
func TestFaultsReportedNginx(t *testing.T) {
	names := []string{"plain", "error-pages", "vllm-docs", "basic-auth", "api-keys"}
	each(rig.Nginxes(t), inject.Nginx, names, func(r rig.Release, fault inject.Fault, name string) {
		t.Run(fault.Name+"/"+name, func(t *testing.T) {
			t.Parallel()
			u := newNginxUser(t, r, name, func(s *rig.Site, conf string) string {
				engine := regexp.MustCompile(`server (127\.\S+:8000)`).FindStringSubmatch(conf)
				s.Configure(fmt.Sprintf("listen: {%s, feed: %q, admin: %q}\n%s\npools: {llama: {models: [%s], replicas: {r1: {address: %q}}}}\n",
					s.Proxy.Listen(), s.Feed, s.Agent.Admin, s.Proxy.Section(), rig.Model, engine[1]))
				dir := filepath.Join(s.Dir, "etc")
				s.Proxy.Render("--attach", "--out", dir, "--nginx-dir", dir)
				conf, ok := inject.ByHand(conf, dir)
				if !ok {
					t.Fatalf("nothing to attach to:\n%s", conf)
				}
				return fault.Edit(conf)
			})
			defer u.client.CloseIdleConnections()
			u.Agent.Start()
			u.reports(fault, func() {
				if strings.Contains(fault.Report, "without a decision") {
					u.Agent.Signal(syscall.SIGSTOP) // its answers come too late
					defer u.Agent.Signal(syscall.SIGCONT)
				}
				for i := range 3 {
					u.call(i).Do(u.client, u.fronts[0])
				}
			})
		})
	})
}

// breakBy puts a fault into what attach wrote.
func (u *user) breakBy(f inject.Fault) {
	u.T.Helper()
	text, err := os.ReadFile(u.own)
	if err != nil {
		u.T.Fatal(err)
	}
	bad := f.Edit(string(text))
	if bad == string(text) {
		u.T.Fatalf("%s cannot be put into\n%s", f.Name, text)
	}
	if err := os.WriteFile(u.own, []byte(bad), 0o640); err != nil {
		u.T.Fatal(err)
	}
}

// serve sends a request n times, which have to succeed: a fault costs decisions, not
// requests.
func (u *user) serve(c rig.Call, n int) {
	u.T.Helper()
	for range n {
		if err := c.Check(c.Do(u.client, u.fronts[0])); err != nil {
			u.T.Errorf("%v", err)
		}
	}
}

// reports sends requests until the agent reports the fault.
func (u *user) reports(f inject.Fault, send func()) {
	u.T.Helper()
	rig.Eventually(u.T, 60*time.Second, "status and log report: "+f.Report, func() (bool, string) {
		send()
		time.Sleep(200 * time.Millisecond)
		status, log := string(u.Agent.Run(nil, "status", "--once")), u.Agent.Log.String()
		_, logged, _ := strings.Cut(log, "level=WARN")
		return strings.Contains(status, f.Report) && strings.Contains(logged, f.Report), status + log
	})
}
