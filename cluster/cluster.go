// Package cluster shares this agent's reservations with other agents, and applies theirs,
// over a bus, which is NATS. Each agent publishes its own events and nobody else's, so
// there is no conflict to resolve. No decision waits for it.
package cluster

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"pointsman/cluster/wire"
	"pointsman/decider"
	"pointsman/decider/budget"
)

const (
	// batchFor is the longest time that an event waits for others to share its message. The
	// first event after such a pause does not wait. Every millisecond by which agents lag
	// behind each other matters with fast engines, and a longer wait saves no processor time.
	batchFor = time.Millisecond
	// beatEvery is how often an agent without events sends a heartbeat.
	beatEvery = 500 * time.Millisecond
	// digestEvery is how often agents publish digests of their reservations.
	digestEvery = 2 * time.Second
	// silentAfter is how long after its last message an agent counts as gone,
	silentAfter = 2 * time.Second
	// and forgottenAfter how long until it is forgotten: all its leases have ended.
	forgottenAfter = 15 * time.Minute
	// tickEvery is the time between two calls of tick.
	tickEvery = 100 * time.Millisecond
	// listsApart is the least time between two lists of an agent's reservations.
	listsApart = 250 * time.Millisecond
	// MostPeers bounds the other agents.
	MostPeers = 64
)

// Bus carries messages between agents, at most once and in the order of each
// sender. Publish must not wait for the network.
type Bus interface {
	Publish(subject string, message []byte) error
	// Subscribe makes the bus call handle with each message, one at a time.
	Subscribe(subject string, handle func(message []byte)) error
	// State describes the connection for people.
	State() string
	Close()
}

// Options configure an agent's part in the cluster.
type Options struct {
	Cluster string // name of the cluster
	Agent   string // name of this agent, no other's
	Secret  wire.Secret
	Decider *decider.Decider
	Log     *slog.Logger
	// Clock is the time since some moment. It never goes back.
	Clock func() time.Duration
}

// Node is this agent in its cluster. Its methods are safe for concurrent use.
type Node struct {
	Options
	epoch   uint64
	bus     atomic.Pointer[Bus] // nil until Connect: the agent's metrics are served before
	started time.Duration
	start   func(func()) // runs longer work in a goroutine

	journal  collector
	wantList atomic.Bool // some agent has missed events
	leaving  atomic.Bool // the agent ends: it publishes nothing more

	publishing publishing
	join       join

	mu      sync.Mutex // guards what follows
	peers   map[string]*peer
	body    []byte // scratch
	reports []budget.Report
	counts  counts
	warned  time.Duration // when it last warned of a namesake, or of a wrong secret
}

// counts are the counters of a node since its start.
type counts struct {
	received, receivedBytes    uint64
	events                     uint64
	refused                    uint64 // sealed with another secret
	otherVersion, malformed    uint64
	namesake                   uint64 // sent by another agent of the same name
	strangers                  uint64 // beyond MostPeers
	stale                      uint64 // of an earlier life of an agent
	unknownPool, unknownServer uint64 // events
	outOfBounds                uint64 // events
	snapshots                  uint64 // restored
}

// New returns a node that is not connected yet, whose decider reports to it. It is
// called before the decider's first Apply.
func New(o Options) *Node {
	n := &Node{Options: o, epoch: newEpoch(), peers: map[string]*peer{}}
	n.journal.wake = make(chan struct{}, 1)
	n.publishing.key = o.Secret.Key(o.Agent, n.epoch)
	n.started, n.start = o.Clock(), func(f func()) { go f() }
	n.join.ready = make(chan struct{})
	o.Decider.Sharing = decider.Sharing{Agent: o.Agent, Journal: &n.journal}
	return n
}

// newEpoch numbers a life of an agent: by the clock, so that the next life has a greater
// number unless the clock was set back, with a random part.
func newEpoch() uint64 {
	var b [8]byte
	_, _ = crand.Read(b[:]) // it never fails
	return uint64(time.Now().UnixMilli())<<16 | binary.BigEndian.Uint64(b[:])>>48
}

// subject is where the events of all agents are published.
func (n *Node) subject() string { return "pointsman." + n.Cluster + ".events" }

// direct is where messages to one agent are published.
func (n *Node) direct(agent string) string {
	return "pointsman." + n.Cluster + ".to." + subjectName(agent)
}

// Connect connects the node to a bus.
func (n *Node) Connect(bus Bus) error {
	n.bus.Store(&bus)
	for _, subject := range []string{n.subject(), n.direct(n.Agent)} {
		if err := bus.Subscribe(subject, n.receive); err != nil {
			return err
		}
	}
	return nil
}

// Run publishes what the decider reports until ctx ends.
func (n *Node) Run(ctx context.Context) {
	n.list()
	n.askAll()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	batch := time.NewTimer(time.Hour)
	defer batch.Stop()
	for {
		select {
		case <-ctx.Done():
			n.flush(false)
			n.leaving.Store(true)
			return
		case <-n.journal.wake:
			if wait := n.publishing.at + batchFor - n.Clock(); wait > 0 {
				batch.Reset(wait)
			} else {
				n.flush(false)
			}
		case <-batch.C:
			n.flush(false)
		case <-tick.C:
			n.tick()
		}
	}
}

// tick does the periodic work.
func (n *Node) tick() {
	now := n.Clock()
	p := &n.publishing
	if n.wantList.Load() && now-p.listed >= listsApart {
		n.wantList.Store(false)
		n.list()
	}
	if now-p.digested >= digestEvery {
		p.digested = now
		n.Decider.PublishDigests()
	}
	n.flush(now-p.at >= beatEvery)
	n.publishUsage(now)
	for _, a := range n.watchPeers(now) {
		n.ask(a.peer, a.epoch, a.wants)
	}
	n.join.tick(n, now)
}
