package cluster

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/VictoriaMetrics/metrics"
)

// Status is a node as people see it.
type Status struct {
	Cluster string       `json:"cluster"`
	Agent   string       `json:"agent"`
	Epoch   string       `json:"epoch"` // of this life of the agent
	Ready   bool         `json:"ready"` // it knows what the others know, or no longer waits for it
	Bus     string       `json:"bus"`
	Peers   []PeerStatus `json:"peers"`

	SentMessages     uint64 `json:"sent_messages"`
	SentBytes        uint64 `json:"sent_bytes"`
	SentEvents       uint64 `json:"sent_events"`
	ReceivedMessages uint64 `json:"received_messages"`
	ReceivedBytes    uint64 `json:"received_bytes"`
	// Refused are messages and connections of agents with another secret, RefusedUs
	// those of this agent that another one refused.
	Refused      uint64 `json:"refused"`
	RefusedUs    uint64 `json:"refused_us"`
	OtherVersion uint64 `json:"other_version"`
	Namesake     uint64 `json:"namesake"` // sent by another agent of the same name

	counts                              counts
	lists, failed, overflow, slow, gaps uint64
}

// PeerStatus is another agent.
type PeerStatus struct {
	Agent string `json:"agent"`
	Epoch string `json:"epoch"`
	// State is "follows"; "asks" while events of it are missing; or "silent".
	State    string  `json:"state"`
	Age      float64 `json:"age_s"` // since its last message
	Lag      float64 `json:"lag_s"` // of its messages
	Messages uint64  `json:"messages"`
	Bytes    uint64  `json:"bytes"`
	Events   uint64  `json:"events"`
	Gaps     uint64  `json:"gaps"`
	Lists    uint64  `json:"lists"`    // of all its reservations, that were applied
	Differed uint64  `json:"differed"` // times that a list was needed although nothing was missed
}

// Warnings describe what keeps other agents and this one apart.
func (s *Status) Warnings() (list []string) {
	for _, w := range []struct {
		n    uint64
		text string
	}{
		{s.Refused, "messages or connections refused: another agent has another secret"},
		{s.RefusedUs, "times refused by another agent: the secret or the cluster's name differs"},
		{s.OtherVersion, "messages of another version ignored"},
		{s.Namesake, "messages of another agent with the same name ignored: set cluster.agent"},
	} {
		if w.n > 0 {
			list = append(list, fmt.Sprintf("%d %s", w.n, w.text))
		}
	}
	return list
}

// Status returns the node as it is now.
func (n *Node) Status() Status {
	s := Status{Cluster: n.Cluster, Agent: n.Agent, Epoch: epochName(n.epoch), Ready: n.IsReady(), Peers: []PeerStatus{}}
	p := &n.publishing
	p.mu.Lock()
	s.SentMessages, s.SentBytes, s.SentEvents, s.lists, s.failed = p.messages, p.bytes, p.events, p.lists, p.failed
	p.mu.Unlock()
	s.overflow = n.journal.lostSoFar()
	var bus Bus
	if p := n.bus.Load(); p != nil {
		bus = *p
		s.Bus = bus.State()
	}
	if b, ok := bus.(interface{ Slow() uint64 }); ok {
		s.slow = b.Slow()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.Clock()
	s.counts = n.counts
	s.ReceivedMessages, s.ReceivedBytes = n.counts.received, n.counts.receivedBytes
	s.Refused, s.OtherVersion, s.Namesake = n.counts.refused, n.counts.otherVersion, n.counts.namesake
	if b, ok := bus.(interface{ Refused() (others, us uint64) }); ok {
		others, us := b.Refused()
		s.Refused += others
		s.RefusedUs = us
	}
	for _, p := range n.peers {
		state := "follows"
		switch {
		case p.silent:
			state = "silent"
		case p.wants:
			state = "asks"
		}
		s.gaps += p.gaps
		s.Peers = append(s.Peers, PeerStatus{
			Agent: p.name, Epoch: epochName(p.epoch), State: state, Age: (now - p.seen).Seconds(), Lag: p.lag.now.Seconds(),
			Messages: p.messages, Bytes: p.bytes, Events: p.events, Gaps: p.gaps, Lists: p.lists, Differed: p.differed,
		})
	}
	slices.SortFunc(s.Peers, func(a, b PeerStatus) int { return strings.Compare(a.Agent, b.Agent) })
	return s
}

func epochName(e uint64) string { return fmt.Sprintf("%016x", e) }

// WriteMetrics writes the node's metrics.
func (n *Node) WriteMetrics(w io.Writer) {
	s := n.Status()
	count := func(name string, v uint64) { metrics.WriteCounterUint64(w, "pointsman_cluster_"+name, v) }
	gauge := func(name string, v float64) { metrics.WriteGaugeFloat64(w, "pointsman_cluster_"+name, v) }
	ready := 0.0
	if s.Ready {
		ready = 1
	}
	gauge("ready", ready)
	states := map[string]int{"follows": 0, "asks": 0, "silent": 0}
	for _, p := range s.Peers {
		states[p.State]++
	}
	for _, state := range []string{"follows", "asks", "silent"} {
		gauge(fmt.Sprintf("peers{state=%q}", state), float64(states[state]))
	}
	count("sent_messages_total", s.SentMessages)
	count("sent_bytes_total", s.SentBytes)
	count("sent_events_total", s.SentEvents)
	count("sent_lists_total", s.lists)
	count("send_failures_total", s.failed)
	count("received_messages_total", s.ReceivedMessages)
	count("received_bytes_total", s.ReceivedBytes)
	count("received_events_total", s.counts.events)
	count("received_snapshots_total", s.counts.snapshots)
	count(`lost_events_total{where="before_sending"}`, s.overflow)
	count(`lost_events_total{where="before_applying"}`, s.slow)
	for _, c := range []struct {
		why string
		n   uint64
	}{
		{"secret", s.Refused},
		{"version", s.OtherVersion},
		{"malformed", s.counts.malformed},
		{"namesake", s.Namesake},
		{"too_many_agents", s.counts.strangers},
		{"earlier_life", s.counts.stale},
	} {
		count(fmt.Sprintf("refused_messages_total{reason=%q}", c.why), c.n)
	}
	for _, c := range []struct {
		why string
		n   uint64
	}{
		{"unknown_pool", s.counts.unknownPool},
		{"unknown_replica", s.counts.unknownServer},
		{"out_of_bounds", s.counts.outOfBounds},
	} {
		count(fmt.Sprintf("ignored_events_total{reason=%q}", c.why), c.n)
	}
	count("refused_by_peers_total", s.RefusedUs)
	for _, p := range s.Peers {
		labels := fmt.Sprintf("{agent=%q}", p.Agent)
		gauge("peer_age_seconds"+labels, p.Age)
		gauge("peer_lag_seconds"+labels, p.Lag)
		count("peer_gaps_total"+labels, p.Gaps)
		count("peer_lists_total"+labels, p.Lists)
		count("peer_differed_total"+labels, p.Differed)
	}
}
