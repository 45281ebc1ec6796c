package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// awaitingPool is a pool that holds requests while it has no replica. replicas
// says where these come from.
func awaitingPool(replicas string) string {
	return fmt.Sprintf(`pools: {%s: {models: [%s], retry_after: 7s, %s, admission:
  {wait: agent, no_replica: hold, band_header: x-band, bands: {short: {ttl: 300ms}, long: {ttl: 5m, max_requests: 6}}}}}
`, pool, model, replicas)
}

// TestAwaitReplica has requests that find no replica held. They are served when
// one comes, and get a 503 with Retry-After when none does.
func TestAwaitReplica(t *testing.T) {
	onEach(t, that(releases(t), func(can abilities) bool { return can.losesHeldCheaply }), func(t *testing.T, r release) {
		t.Run("found", func(t *testing.T) { t.Parallel(); awaitFound(t, r) })
		t.Run("up", func(t *testing.T) { t.Parallel(); awaitUp(t, r) })
	})
}

// awaitFound has a list of replicas that becomes empty, and has one again.
func awaitFound(t *testing.T, r release) {
	e := startEngine(t, "a", engineOptions{Models: []string{model}})
	file := filepath.Join(t.TempDir(), "targets.json")
	listTargets(t, file, e) // nginx is not rendered for none
	s := newSite(t, r, awaitingPool(fmt.Sprintf("discover: {file: %q, poll: 100ms}", file)))
	s.unhurried()
	s.start()
	listTargets(t, file)
	eventually(t, 5*time.Second, "no replicas", func() (bool, string) {
		p := s.agent.pool(pool)
		return len(p.Replicas) == 0, fmt.Sprintf("%+v", p)
	})
	s.heldUntil(func() { listTargets(t, file, e) })
}

// awaitUp has a replica that goes down and comes up, as the proxy's checks say or
// else the agent's.
func awaitUp(t *testing.T, r release) {
	e := startEngine(t, "a", engineOptions{Models: []string{model}})
	health := ", health: {poll: 100ms}"
	if r.can.checks {
		health = ""
	}
	s := newSite(t, r, awaitingPool("replicas: "+replicasYAML(e)+health))
	s.unhurried()
	s.start()
	client := newClient(4, true, false)
	defer client.CloseIdleConnections()
	s.serve(client, 2)
	if r.can.checks {
		s.haproxy().state("a", "maint")
	} else {
		fault(t, e, `{"status":503,"path":"/health"}`)
	}
	s.awaitState("a", 5*time.Second, "down")
	s.heldUntil(func() {
		if r.can.checks {
			s.haproxy().state("a", "ready")
		} else {
			e.recovers(t)
		}
	})
}

// heldUntil has requests held by a site without replicas until comes brings one.
func (s *site) heldUntil(comes func()) {
	t := s.t
	t.Helper()
	client := newClient(32, true, false)
	defer client.CloseIdleConnections()
	start := time.Now()
	a := of("short").do(client, s.front)
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
			c := of("long")
			if err := c.check(c.do(client, s.front)); err != nil {
				t.Error(err)
			}
		})
	}
	s.awaitQueued("long", 6)
	if a := of("long").do(client, s.front); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
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
