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

	"pointsman/test/rig"
)

// awaitingPool is a pool that holds requests while it has no replica. replicas
// says where these come from.
func awaitingPool(replicas string) string {
	return fmt.Sprintf(`pools: {%s: {models: [%s], retry_after: 7s, %s, admission:
  {wait: agent, no_replica: hold, band_header: x-band, bands: {short: {ttl: 300ms}, long: {ttl: 5m, max_requests: 6}}}}}
`, rig.Pool, rig.Model, replicas)
}

// TestAwaitReplica has requests that find no replica held. They are served when
// one comes, and get a 503 with Retry-After when none does.
func TestAwaitReplica(t *testing.T) {
	rig.OnEach(t, rig.That(rig.Releases(t), func(can rig.Abilities) bool { return can.LosesHeldCheaply }), func(t *testing.T, r rig.Release) {
		t.Run("found", func(t *testing.T) { t.Parallel(); awaitFound(t, r) })
		t.Run("up", func(t *testing.T) { t.Parallel(); awaitUp(t, r) })
	})
}

// awaitFound has a list of replicas that becomes empty, and has one again.
func awaitFound(t *testing.T, r rig.Release) {
	e := rig.StartEngine(t, "a", rig.EngineOptions{Models: []string{rig.Model}})
	file := filepath.Join(t.TempDir(), "targets.json")
	listTargets(t, file, e) // nginx is not rendered for none
	s := rig.NewSite(t, r, awaitingPool(fmt.Sprintf("discover: {file: %q, poll: 100ms}", file)))
	s.Unhurried()
	s.Start()
	listTargets(t, file)
	rig.Eventually(t, 5*time.Second, "no replicas", func() (bool, string) {
		p := s.Agent.Pool(rig.Pool)
		return len(p.Replicas) == 0, fmt.Sprintf("%+v", p)
	})
	heldUntil(s, func() { listTargets(t, file, e) })
}

// awaitUp has a replica that goes down and comes up, as the proxy's checks say or
// else the agent's.
func awaitUp(t *testing.T, r rig.Release) {
	e := rig.StartEngine(t, "a", rig.EngineOptions{Models: []string{rig.Model}})
	health := ", health: {poll: 100ms}"
	if r.Can.Checks {
		health = ""
	}
	s := rig.NewSite(t, r, awaitingPool("replicas: "+rig.ReplicasYAML(e)+health))
	s.Unhurried()
	s.Start()
	client := rig.NewClient(4, true, false)
	defer client.CloseIdleConnections()
	s.Serve(client, 2)
	if r.Can.Checks {
		s.HAProxy().State("a", "maint")
	} else {
		rig.Fault(t, e, `{"status":503,"path":"/health"}`)
	}
	s.AwaitState("a", 5*time.Second, "down")
	heldUntil(s, func() {
		if r.Can.Checks {
			s.HAProxy().State("a", "ready")
		} else {
			e.Recovers(t)
		}
	})
}

// heldUntil has requests held by a site without replicas until comes brings one.
func heldUntil(s *rig.Site, comes func()) {
	t := s.T
	t.Helper()
	client := rig.NewClient(32, true, false)
	defer client.CloseIdleConnections()
	start := time.Now()
	a := rig.Of("short").Do(client, s.Front)
	var refusal struct {
		Error struct {
			Message, Type string
			Code          any
		}
	}
	if err := json.Unmarshal(a.Body, &refusal); a.Err != nil || err != nil || a.Status != http.StatusServiceUnavailable ||
		a.Header.Get("Retry-After") != "7" || !strings.Contains(refusal.Error.Message, "no replica") || refusal.Error.Type == "" {
		t.Errorf("none came: %d, Retry-After %q, %s %v", a.Status, a.Header.Get("Retry-After"), a.Body, a.Err)
	}
	if took := time.Since(start); took < 300*time.Millisecond {
		t.Errorf("given up after %v", took)
	}
	if n := s.Agent.Metrics()[`pointsman_shed_total{pool="llama",band="short",tenants="other",reason="no_replica"}`]; n != 1 {
		t.Errorf("%v counted as given up", n)
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			c := rig.Of("long")
			if err := c.Check(c.Do(client, s.Front)); err != nil {
				t.Error(err)
			}
		})
	}
	s.AwaitQueued("long", 6)
	if a := rig.Of("long").Do(client, s.Front); a.Status != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" {
		t.Errorf("above the limit: %d %s", a.Status, a.Body)
	}
	var scale struct {
		Recommended int `json:"recommended_replicas"`
		Queue       int `json:"queue_requests"`
	}
	if b, err := s.Agent.Get("/autoscale?pool=" + rig.Pool); err != nil || json.Unmarshal(b, &scale) != nil || scale.Recommended != 1 || scale.Queue != 6 {
		t.Errorf("/autoscale: %s %v", b, err)
	}
	for args, want := range map[string]string{"explain": "held until a replica is up", "status --once": "until a replica is up"} {
		cmd := exec.Command(rig.Binary, append(strings.Fields(args), "--admin", s.Agent.Admin)...)
		cmd.Stdin = bytes.NewReader(rig.Small(false).Body)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
	comes()
	all.Wait()
	s.Serve(client, 4)
	if p := s.Agent.Settled(rig.Pool); p.Outcomes["served"] < 10 || p.Outcomes["failed"] != 0 || p.Outcomes["refused"] != 0 {
		t.Errorf("%+v", p)
	}
}
