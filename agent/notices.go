package agent

import (
	"context"
	"log/slog"
	"time"

	"pointsman/decider"
	"pointsman/link"
)

// links are the connections to the proxies that are configured.
func (a *Agent) links() (list []*link.Link) {
	if a.conf.File.Listen.SPOE != "" {
		list = append(list, a.link)
	}
	if a.nginx != nil {
		list = append(list, a.nginx.link)
	}
	return list
}

// notices logs, once each, what a proxy fails to report, and replicas that come, leave, or
// change their state. It belongs to one goroutine.
type notices struct {
	log        *slog.Logger
	decider    *decider.Decider
	links      []*link.Link
	problems   map[string]bool   // by proxy, those that were logged; by proxy and fault
	unanswered map[string]uint64 // by proxy, as of the last line about it
	states     map[replicaOf]string
	known      map[string]bool // pools whose replicas were seen before
	troubles   map[replicaOf]trouble
}

// trouble is a state that replicas may have for a moment only: it is logged when it lasts
// until the next tick, and as over when the replica has served again.
type trouble struct {
	state  string
	served uint64
}

// lasting returns the state to log for a replica, which was logged in another one before.
func (t *notices) lasting(k replicaOf, r *decider.ReplicaStatus, before string) string {
	now := trouble{served: r.Served}
	switch {
	case r.State == "down" || r.State == "draining":
		return r.State
	case r.Passed():
		now.state = passedOver
	case r.State == "ejected":
		now.state = r.State
	}
	last := t.troubles[k]
	switch {
	case now.state != "":
		t.troubles[k] = now
		if now.state == last.state || now.state == before {
			return now.state
		}
		return "up"
	case last.state != "" && before == last.state && r.Served == last.served:
		return before
	}
	delete(t.troubles, k)
	return "up"
}

// passedOver is the state of a replica whose decisions the proxy does not follow.
const passedOver = "passed over"

type replicaOf struct{ pool, replica string }

// maxNotices bounds the lines about replicas at one time.
const maxNotices = 20

func newNotices(a *Agent) *notices {
	return &notices{
		log: a.Log, decider: a.decider, links: a.links(), problems: map[string]bool{}, unanswered: map[string]uint64{},
		states: map[replicaOf]string{}, known: map[string]bool{}, troubles: map[replicaOf]trouble{},
	}
}

// tick compares what is known now with what was logged.
func (t *notices) tick(now time.Time) {
	for _, l := range t.links {
		l.Tick(now)
		s := l.Status(now)
		switch {
		case s.Problem != "" && !t.problems[s.Proxy]:
			t.problems[s.Proxy] = true
			t.log.Warn("the proxy does not report what becomes of requests", "proxy", s.Proxy, "problem", s.Problem,
				"remedy", "see the log lines that `pointsman render "+s.Proxy+"` adds, and listen.feed")
		case s.Problem == "" && t.problems[s.Proxy] && s.SinceLine == 0:
			t.problems[s.Proxy] = false
			t.log.Info("the proxy reports again", "proxy", s.Proxy)
		}
		for _, f := range s.Faults {
			if key := s.Proxy + " " + f.Fault; !t.problems[key] {
				t.problems[key] = true
				t.log.Warn("the proxy's configuration does not have pointsman work", "proxy", s.Proxy, "fault", f.Fault, "problem", f.Problem, "remedy", f.Remedy)
			}
		}
		if s.Unanswered > 0 && t.unanswered[s.Proxy] == 0 {
			t.log.Warn("requests went on without an answer of the agent: it was too late, or away", "proxy", s.Proxy, "requests", s.Unanswered)
		}
		t.unanswered[s.Proxy] = s.Unanswered
	}
	t.replicas()
}

// replicas logs changes of the replicas. It does not log the first replicas of a pool.
func (t *notices) replicas() {
	lines := 0
	say := func(level slog.Level, text string, k replicaOf) {
		if lines++; lines <= maxNotices {
			t.log.Log(context.Background(), level, text, "pool", k.pool, "replica", k.replica)
		}
	}
	states := map[replicaOf]string{}
	known := map[string]bool{}
	for _, p := range t.decider.Pools() {
		list := p.Status().Replicas
		known[p.Name()] = t.known[p.Name()] || len(list) > 0
		for i := range list {
			k := replicaOf{p.Name(), list[i].Name}
			before, was := t.states[k]
			state := t.lasting(k, &list[i], before)
			states[k] = state
			switch {
			case !was && t.known[p.Name()]:
				say(slog.LevelInfo, "a replica came", k)
			case !was && state != "up":
				say(slog.LevelWarn, "a replica is "+state, k)
			case !was || before == state:
			case state == "down":
				say(slog.LevelWarn, "a replica went down", k)
			case state == "draining":
				say(slog.LevelInfo, "a replica drains", k)
			case state == "ejected":
				say(slog.LevelWarn, "a replica fails, and is ejected", k)
			case state == passedOver:
				say(slog.LevelWarn, "the proxy gives the requests decided for a replica to others: has it a server of this name, and is that up? `pointsman check` compares", k)
			case before == passedOver:
				say(slog.LevelInfo, "the proxy uses a replica again", k)
			default:
				say(slog.LevelInfo, "a replica is up again", k)
			}
		}
	}
	for k := range t.states {
		if _, is := states[k]; !is {
			delete(t.troubles, k)
			say(slog.LevelInfo, "a replica left", k)
		}
	}
	if lines > maxNotices {
		t.log.Info("more replicas changed", "replicas", lines-maxNotices)
	}
	t.states, t.known = states, known
}
