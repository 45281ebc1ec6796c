package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pointsman/sim/fakevllm"
	"pointsman/test/proxies"
)

// awaitingPool is a pool that holds requests while it has no replica. replicas
// says where these come from.
func awaitingPool(replicas string) string {
	return fmt.Sprintf(`pools: {%s: {models: [%s], retry_after: 7s, %s, admission:
  {wait: agent, no_replica: hold, band_header: x-band, bands: {short: {ttl: 300ms}, long: {ttl: 30s, max_requests: 6}}}}}
`, pool, model, replicas)
}

// Requests that find no replica are held. They are served when one comes, and
// have a 503 with Retry-After when none does.
func TestAwaitReplica(t *testing.T) {
	nginx := func(t *testing.T, bin proxies.Binary, pools string) *site {
		s := newNginxSite(t, bin, pools)
		s.edit("processing_timeout: 1s, ", "")
		s.start()
		return s.site
	}
	haproxy := func(t *testing.T, bin proxies.Binary, pools string) *site {
		s := newSite(t, bin, pools)
		s.edit(", processing_timeout: 1s", "")
		s.start()
		return s
	}
	bins := proxies.Nginxes(t)
	bin := bins[len(bins)-1]
	t.Run("nginx-found", func(t *testing.T) { awaitFound(t, bin, nginx) })
	t.Run("nginx-up", func(t *testing.T) {
		awaitUp(t, bin, ", health: {poll: 100ms}", nginx,
			func(_ *site, e *engine) { fault(t, e, `{"status":503,"path":"/health"}`) },
			func(_ *site, e *engine) {
				if a := (call{path: "/fake/reset"}).do(http.DefaultClient, e.address); a.status != 200 {
					t.Error(a.status, a.err)
				}
			})
	})
	for _, bin := range proxies.HAProxies(t) {
		if bin.Version == "2.6" {
			continue // where a hold is also the price of a dead agent
		}
		t.Run("haproxy-found-"+bin.Version, func(t *testing.T) { awaitFound(t, bin, haproxy) })
		t.Run("haproxy-up-"+bin.Version, func(t *testing.T) {
			awaitUp(t, bin, "", haproxy,
				func(s *site, e *engine) { s.command("disable server " + pool + "/" + e.name) },
				func(s *site, e *engine) { s.command("enable server " + pool + "/" + e.name) })
		})
	}
}

// awaitFound has a list of replicas that becomes empty, and has one again.
func awaitFound(t *testing.T, bin proxies.Binary, start func(*testing.T, proxies.Binary, string) *site) {
	t.Parallel()
	e := startEngine(t, "a", fakevllm.Options{Models: []string{model}})
	file := filepath.Join(t.TempDir(), "targets.json")
	list := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	one := fmt.Sprintf(`[{"targets": [%q]}]`, e.address)
	list(one) // nginx is not rendered for none
	s := start(t, bin, awaitingPool(fmt.Sprintf("discover: {file: %q, poll: 100ms}", file)))
	list("[]")
	eventually(t, 5*time.Second, "no replicas", func() (bool, string) {
		p := s.agent.pool(pool)
		return len(p.Replicas) == 0, fmt.Sprintf("%+v", p)
	})
	s.heldUntil(func() { list(one) })
}

// awaitUp has a replica that goes down and comes up.
func awaitUp(t *testing.T, bin proxies.Binary, health string, start func(*testing.T, proxies.Binary, string) *site, down, up func(*site, *engine)) {
	t.Parallel()
	e := startEngine(t, "a", fakevllm.Options{Models: []string{model}})
	s := start(t, bin, awaitingPool("replicas: "+replicasYAML(e)+health))
	client := newClient(4, true, false)
	defer client.CloseIdleConnections()
	s.serve(client, 2)
	down(s, e)
	s.awaitState("a", 5*time.Second, "down")
	s.heldUntil(func() { up(s, e) })
}

// heldUntil has requests held by a site without replicas until comes brings one.
func (s *site) heldUntil(comes func()) {
	t := s.t
	t.Helper()
	client := newClient(32, true, false)
	defer client.CloseIdleConnections()
	start := time.Now()
	a := of("short", 0).do(client, s.front)
	var refusal struct {
		Error struct {
			Message, Type string
			Code          any
		}
	}
	if err := json.Unmarshal(a.body, &refusal); a.err != nil || err != nil || a.status != http.StatusServiceUnavailable ||
		a.header.Get("Retry-After") != "7" || !strings.Contains(refusal.Error.Message, "no replica") || refusal.Error.Type == "" {
		t.Errorf("none came: %d, Retry-After %q, %s %v", a.status, a.header.Get("Retry-After"), a.body, a.err)
	}
	if took := time.Since(start); took < 300*time.Millisecond {
		t.Errorf("given up after %v", took)
	}
	if n := s.agent.metrics()[`pointsman_shed_total{pool="llama",band="short",tenants="other",reason="no_replica"}`]; n != 1 {
		t.Errorf("%v counted as given up", n)
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			c := of("long", 0)
			if err := c.check(c.do(client, s.front)); err != nil {
				t.Error(err)
			}
		})
	}
	s.awaitQueued("long", 6)
	if a := of("long", 0).do(client, s.front); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf("above the limit: %d %s", a.status, a.body)
	}
	var scale struct {
		Recommended int `json:"recommended_replicas"`
		Queue       int `json:"queue_requests"`
	}
	if b, err := s.agent.get("/autoscale?pool=" + pool); err != nil || json.Unmarshal(b, &scale) != nil || scale.Recommended != 1 || scale.Queue != 6 {
		t.Errorf("/autoscale: %s %v", b, err)
	}
	for args, want := range map[string]string{"explain": "held until a replica is up", "status --once": "until a replica is up"} {
		cmd := exec.Command(binary, append(strings.Fields(args), "--admin", s.agent.admin)...)
		cmd.Stdin = bytes.NewReader(small(false).body)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
	comes()
	all.Wait()
	s.serve(client, 4)
	if p := s.agent.settled(pool); p.Outcomes["served"] < 10 || p.Outcomes["failed"] != 0 || p.Outcomes["refused"] != 0 {
		t.Errorf("%+v", p)
	}
}
