package agent

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/link"
)

// TestNotices: what the proxy does not report is logged once, and again when that has
// changed; replicas that come, leave, drain or go down have a line each.
func TestNotices(t *testing.T) {
	clock, chance := time.Hour, uint64(0)
	d := decider.New(func() time.Duration { return clock }, func() uint64 { chance += 0x9e3779b97f4a7c15; return chance })
	apply := func(names ...string) {
		c := decider.PoolConfig{Name: "llama", Policy: policy.Random{}}
		for _, n := range names {
			c.Replicas = append(c.Replicas, decider.ReplicaConfig{Name: n})
		}
		d.Apply(decider.Config{Pools: []decider.PoolConfig{c}})
	}
	apply("r1", "r2")
	k := &link.Link{Proxy: "haproxy", FeedConnections: func() int { return 0 }}
	var b strings.Builder
	notices := &notices{
		log: slog.New(slog.NewTextHandler(&b, nil)), decider: d, links: []*link.Link{k}, problems: map[string]bool{},
		unanswered: map[string]uint64{}, states: map[replicaOf]string{}, known: map[string]bool{}, troubles: map[replicaOf]trouble{},
	}
	now := time.Now()
	logs := func(what string, want ...string) {
		t.Helper()
		for range 3 {
			notices.tick(now.Add(5 * time.Second))
		}
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		if b.Len() == 0 {
			lines = nil
		}
		if len(lines) != len(want) {
			t.Errorf("%s: want %d lines:\n%s", what, len(want), b.String())
		}
		for i := range min(len(lines), len(want)) {
			if !strings.Contains(lines[i], want[i]) {
				t.Errorf("%s: no %q in %s", what, want[i], lines[i])
			}
		}
		b.Reset()
	}
	logs("at the start")
	k.Asked(now)
	logs("no feed", "the feed is not connected, 1 questions since its last line")
	k.LineRead(now)
	k.Ended(false, false)
	logs("a line", "the proxy reports again", "requests went on without an answer of the agent")

	apply("r1", "r2", "r3")
	logs("one came", "a replica came\" pool=llama replica=r3")
	p := d.Pools()[0]
	state := func(name string, up, draining bool) {
		p.Discovered([]decider.ReplicaState{{Name: name, Up: up, Draining: draining, Weight: 1}})
	}
	state("r1", false, false)
	logs("down", `went down" pool=llama replica=r1`)
	state("r1", true, true)
	logs("drain", `drains" pool=llama replica=r1`)
	state("r1", true, false)
	logs("up", `up again" pool=llama replica=r1`)

	decided := uint64(0)
	ends := func(n int, o decider.Outcome) {
		t.Helper()
		for range n {
			for tries := 0; ; tries++ {
				if tries > 1000 {
					t.Fatal("r3 is not chosen")
				}
				var d decider.Decision
				decided++
				id := decider.ID{0: byte(decided), 1: byte(decided >> 8), 8: 1}
				p.Decide(&decider.Request{ID: id, Pool: p}, &d)
				end := o
				if end.ID = id; d.Server != "r3" {
					end = decider.Outcome{ID: id, Server: []byte(d.Server), End: decider.Served, Status: 200}
				}
				if p.Finished(end); d.Server == "r3" {
					break
				}
			}
		}
	}
	ends(20, decider.Outcome{Server: []byte("r1"), End: decider.Served, Status: 200})
	logs("passed over", `decided for a replica to others: has it a server of this name, and is that up? `+"`pointsman check`"+` compares" pool=llama replica=r3`)
	clock += 2 * time.Second
	ends(1, decider.Outcome{Server: []byte("r3"), End: decider.Served, Status: 200})
	logs("followed", `the proxy uses a replica again" pool=llama replica=r3`)
	ends(1, decider.Outcome{Server: []byte("r1"), End: decider.Served, Status: 200, Redispatched: true})
	logs("refused", `a replica fails, and is ejected" pool=llama replica=r3`)
	clock += 2 * time.Second
	logs("not ejected any more, and nothing served yet")
	ends(1, decider.Outcome{Server: []byte("r3"), End: decider.Served, Status: 200})
	logs("serves again", `up again" pool=llama replica=r3`)
	ends(1, decider.Outcome{Server: []byte("r1"), End: decider.Served, Status: 200, Redispatched: true})
	notices.tick(now)
	clock += 2 * time.Second
	logs("ejected for a moment")

	apply("r1")
	if notices.tick(now); strings.Count(b.String(), "a replica left") != 2 {
		t.Errorf("%s", b.String())
	}
}
