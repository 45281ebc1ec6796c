package replay

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"pointsman/decider"
)

// ReplicaChange is something that happens to a replica in mid-run.
type ReplicaChange struct {
	At      time.Duration // since the first request
	Replica int
	Kind    ChangeKind
	Factor  float64 // Slow: the new speed as a multiple of the replica's
}

// ChangeKind says what happens to a replica.
type ChangeKind uint8

const (
	// Slow changes the replica's speed.
	Slow ChangeKind = iota
	// Leave drains the replica: it ends its requests and gets no others.
	Leave
	// Join adds the replica, with an empty cache. It is absent before.
	Join
)

// Events are the changes of replicas and reports during a replay.
type Events struct {
	Changes []ReplicaChange
	// Reports of the proxy are lost in the last LostFor of every LostEvery.
	LostFor, LostEvery time.Duration
	// Foreign is the share of the requests that reach the replicas in turn without
	// an agent, as from another gateway. They are not part of the results.
	Foreign float64
}

var errEvent = errors.New("want slow@1500s:r3:0.33, leave@600s:r3, join@600s:r3, feedback-lost=5s/60s or foreign=0.3")

// ParseEvents reads events in the forms that errEvent names.
func ParseEvents(specs []string) (e Events, err error) {
	for _, spec := range specs {
		if !e.parse(spec) {
			return Events{}, fmt.Errorf("event: %q, %w", spec, errEvent)
		}
	}
	return e, nil
}

// parse reads one event and reports whether it is valid.
func (e *Events) parse(spec string) bool {
	if value, ok := strings.CutPrefix(spec, "feedback-lost="); ok {
		lost, every, _ := strings.Cut(value, "/")
		var err, err2 error
		e.LostFor, err = time.ParseDuration(lost)
		e.LostEvery, err2 = time.ParseDuration(every)
		return err == nil && err2 == nil && e.LostFor > 0 && e.LostFor <= e.LostEvery
	}
	if value, ok := strings.CutPrefix(spec, "foreign="); ok {
		var err error
		e.Foreign, err = strconv.ParseFloat(value, 64)
		return err == nil && e.Foreign >= 0 && e.Foreign < 1
	}
	name, rest, _ := strings.Cut(spec, "@")
	kinds := map[string]ChangeKind{"slow": Slow, "leave": Leave, "join": Join}
	kind, ok := kinds[name]
	parts := strings.Split(rest, ":")
	if !ok || kind == Slow && len(parts) != 3 || kind != Slow && len(parts) != 2 {
		return false
	}
	c := ReplicaChange{Kind: kind, Factor: 1}
	at, err := time.ParseDuration(parts[0])
	number, found := strings.CutPrefix(parts[1], "r")
	replica, err2 := strconv.Atoi(number)
	if err != nil || err2 != nil || !found || at < 0 {
		return false
	}
	c.At, c.Replica = at, replica
	if kind == Slow {
		if c.Factor, err = strconv.ParseFloat(parts[2], 64); err != nil || !(c.Factor > 0) || math.IsInf(c.Factor, 0) {
			return false
		}
	}
	e.Changes = append(e.Changes, c)
	return true
}

// validate returns an error for an event of a replica that does not exist.
func (e *Events) validate(replicas int) error {
	for _, c := range e.Changes {
		if c.Replica < 0 || c.Replica >= replicas {
			return fmt.Errorf("event of replica r%d, want r0 to r%d", c.Replica, replicas-1)
		}
	}
	return nil
}

// lost reports whether a report of the proxy at that time is lost.
func (e *Events) lost(now time.Duration) bool {
	return e.LostEvery > 0 && now%e.LostEvery >= e.LostEvery-e.LostFor
}

// scheduleChanges schedules the events of replicas. Those that join are absent
// until then.
func (s *simulation) scheduleChanges() {
	for i := range s.o.Events.Changes {
		c := &s.o.Events.Changes[i]
		if c.Kind == Join {
			s.setState(c.Replica, decider.ReplicaState{Draining: true})
		}
		s.events.push(event{at: c.At, kind: eventChange, replica: i})
	}
}

// change makes a change of a replica; agents learn of it at once.
func (s *simulation) change(c *ReplicaChange) {
	switch c.Kind {
	case Slow:
		s.engines[c.Replica].SetProfile(s.now, s.o.Profile.Scale(s.o.speed(c.Replica)*c.Factor))
		s.schedule(c.Replica)
	case Leave:
		s.setState(c.Replica, decider.ReplicaState{Up: true, Draining: true})
	case Join:
		s.setState(c.Replica, decider.ReplicaState{Up: true})
	}
}

// setState reports to the agents what the proxy does with a replica.
func (s *simulation) setState(k int, state decider.ReplicaState) {
	state.Name, state.Weight = s.names[k], 1
	s.away[k] = !state.Up || state.Draining
	for _, a := range s.agents {
		a.pool.Discovered([]decider.ReplicaState{state})
	}
}

// isForeign draws whether a request comes from another gateway.
func (s *simulation) isForeign() bool {
	return s.o.Events.Foreign > 0 && s.random.Float64() < s.o.Events.Foreign
}

// sendForeign sends f to the next replica without a decision.
func (s *simulation) sendForeign(f *flight) {
	f.foreign = true
	s.load.add(-1, 1)
	s.send(f, &decider.Decision{})
}
