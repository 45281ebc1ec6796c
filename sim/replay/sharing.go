package replay

import (
	"errors"
	"slices"
	"strings"
	"time"

	"pointsman/decider"
)

// Partition is a time during which no messages pass between agents.
type Partition struct {
	At  time.Duration // since the first request
	For time.Duration
}

// silentAfter is how long without messages agents treat each other as gone, as in a
// cluster.
const silentAfter = 2 * time.Second

var errPartition = errors.New("want DURATION@TIME, such as 30s@600s")

// ParsePartition reads a partition such as 30s@600s. "" is none.
func ParsePartition(spec string) (p Partition, err error) {
	if spec == "" {
		return Partition{}, nil
	}
	length, at, ok := strings.Cut(spec, "@")
	if p.For, err = time.ParseDuration(length); err != nil || !ok || p.For <= 0 {
		return Partition{}, errPartition
	}
	if p.At, err = time.ParseDuration(at); err != nil || p.At < 0 {
		return Partition{}, errPartition
	}
	return p, nil
}

// cuts reports whether messages sent at that time are lost.
func (p Partition) cuts(now time.Duration) bool { return p.For > 0 && now >= p.At && now < p.At+p.For }

// schedulePartition makes agents notice the partition, and its end.
func (s *simulation) schedulePartition() {
	p := s.o.Partition
	if p.For == 0 || s.o.Share == 0 {
		return
	}
	if p.For > silentAfter {
		s.events.push(event{at: p.At + silentAfter, kind: eventSilent})
	}
	s.events.push(event{at: p.At + p.For, kind: eventHealed})
}

// silent makes every agent treat the others as gone.
func (s *simulation) silent() {
	for _, a := range s.agents {
		for _, other := range s.agents {
			if other != a {
				a.decider.Silent(other.name)
			}
		}
	}
}

// journal sends an agent's events to the others, after the sharing delay.
type journal struct {
	*simulation
	agent *agent
}

// Add implements decider.Journal.
func (j journal) Add(e *decider.Event) {
	s := j.simulation
	if s.o.Partition.cuts(s.now) {
		return
	}
	kept := *e
	kept.Request.Blocks = slices.Clone(e.Request.Blocks)
	kept.Late = s.o.Share
	for _, a := range s.agents {
		if a != j.agent {
			s.events.push(event{at: s.now + s.o.Share, kind: eventShared, agent: a, shared: &kept, from: j.agent.name})
		}
	}
}

var _ decider.Journal = journal{}
