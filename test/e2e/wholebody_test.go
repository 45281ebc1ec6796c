package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"pointsman/templates"
	"pointsman/test/rig"
)

// TestWholeBody: with buffers that are large enough the agent sees all of a body of
// eight megabytes.
func TestWholeBody(t *testing.T) {
	list := rig.HAProxies(t)
	if !rig.Soak {
		list = list[len(list)-1:]
	}
	rig.OnEach(t, list, func(t *testing.T, r rig.Release) {
		s, _ := rig.Replicas(t, r, 2, "least_requests", "scan: {limit: 12MiB}")
		s.Edit("haproxy: {", "haproxy: {bufsize: 12MiB, ")
		s.Patient()
		s.Start()
		client := rig.NewClient(1, true, false)
		defer client.CloseIdleConnections()
		text := rig.Fill(4<<20-1, 0) + rig.Fill(4<<20-1, 1)
		c := rig.Call{Body: fmt.Appendf(nil, `{"messages":[{"role":"user","content":%q}],"model":%q,"max_tokens":3}`, text, rig.Model)}
		if err := c.Check(c.Do(client, s.Front)); err != nil {
			t.Fatal(err)
		}
		if d := lastDecision(t, s); d.Cut || d.Model != rig.Model || d.Input < 1<<20 {
			t.Errorf("%+v", d)
		}
		s.Untroubled()
	})
}

// TestLargeBuffers: with large buffers, which HAProxy has from 3.4 on, the whole of a
// body is seen as far as a frame holds it, and beyond that its head, its tail and its
// model, wherever that stands.
func TestLargeBuffers(t *testing.T) {
	if os.Getenv("POINTSMAN_LARGE_BUFFERS") == "" {
		t.Skip("make large-buffers runs this")
	}
	var list []rig.Release
	for _, r := range rig.HAProxies(t) {
		if v, err := templates.ParseVersion(r.Version); err == nil && v.AtLeast(3, 4) {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		t.Fatal("no HAProxy 3.4 in PATH")
	}
	rig.OnEach(t, list, func(t *testing.T, r rig.Release) {
		s, _ := rig.Replicas(t, r, 2, "least_requests", "scan: {limit: 12MiB}")
		s.Edit("haproxy: {", "haproxy: {large_bufsize: 8MiB, ")
		s.Patient()
		s.Start()
		client := rig.NewClient(1, true, false)
		defer client.CloseIdleConnections()
		for _, size := range []int{300, 50_000, 60_000, 100_000, 300_000, 4_000_000} {
			c := rig.Call{Body: fmt.Appendf(nil, `{"messages":[{"role":"user","content":%q}],"max_tokens":3,"model":%q}`, rig.Fill(size, 0), rig.Model)}
			if err := c.Check(c.Do(client, s.Front)); err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			if d := lastDecision(t, s); d.Cut != (size > 110_000) || d.Model != rig.Model || d.Output != 3 {
				t.Errorf("%d bytes: %+v", size, d)
			}
		}
		s.Untroubled()
	})
}

// decision is the part of a record in /debug/decisions that tests look at.
type decision struct {
	Seq    uint64 `json:"seq"`
	Cut    bool   `json:"cut"`
	Model  string `json:"model"`
	Input  int    `json:"input_tokens"`
	Output int    `json:"output_tokens"`
}

func lastDecision(t *testing.T, s *rig.Site) (last decision) {
	t.Helper()
	b, err := s.Agent.Get("/debug/decisions")
	if err != nil {
		t.Fatal(err)
	}
	var records []decision
	if err := json.Unmarshal(b, &records); err != nil || len(records) == 0 {
		t.Fatalf("%v %s", err, b)
	}
	for _, d := range records {
		if d.Seq >= last.Seq {
			last = d
		}
	}
	return last
}
