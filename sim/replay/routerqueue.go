package replay

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// RouterQueue is the queue of NVIDIA Dynamo's router: while all replicas have more
// prompt tokens before their first token than a threshold, requests wait in the
// router, and are decided when one has fewer.
type RouterQueue struct {
	// Threshold is in multiples of Profile.Chunk, the tokens of a step.
	Threshold float64
	Order     QueueOrder
}

// QueueOrder says which request of a RouterQueue is decided next.
type QueueOrder string

// The orders of Dynamo.
const (
	FCFS QueueOrder = "fcfs" // the first that came
	LCFS QueueOrder = "lcfs" // the last that came
	WSPT QueueOrder = "wspt" // the one with the fewest tokens to compute when it came
)

// ParseRouterQueue reads a queue in the form 16 or 16,wspt. "" is none.
func ParseRouterQueue(text string) (*RouterQueue, error) {
	if text == "" {
		return nil, nil
	}
	q := RouterQueue{Order: FCFS}
	threshold, order, ok := strings.Cut(text, ",")
	if ok {
		q.Order = QueueOrder(order)
	}
	var err error
	q.Threshold, err = strconv.ParseFloat(threshold, 64)
	if err != nil || !(q.Threshold >= 0) || math.IsInf(q.Threshold, 0) || q.Order != FCFS && q.Order != LCFS && q.Order != WSPT {
		return nil, fmt.Errorf("router-queue: %q, want a threshold in steps, and perhaps an order, such as 16 or 16,wspt; orders are fcfs, lcfs and wspt", text)
	}
	return &q, nil
}

// String is the form of a policy's name.
func (q *RouterQueue) String() string {
	text := "queue " + strconv.FormatFloat(q.Threshold, 'g', -1, 64)
	if q.Order != FCFS {
		text += " " + string(q.Order)
	}
	return text
}

// WithRouterQueue returns the policies, each kv_cost followed by itself with the
// queue. Policies without a kv_cost are an error.
func WithRouterQueue(policies []Policy, q *RouterQueue) ([]Policy, error) {
	if q == nil {
		return policies, nil
	}
	var list []Policy
	for _, p := range policies {
		list = append(list, p)
		if strings.HasPrefix(p.Flow, "{name: kv_cost") {
			p.Queue, p.Name = q, p.Name+" "+q.String()
			list = append(list, p)
		}
	}
	if len(list) == len(policies) {
		return nil, errors.New("router-queue: want the policy kv_cost, since the queue is Dynamo's")
	}
	return list, nil
}

// routerQueue holds the requests of a RouterQueue. It counts as the router does: the
// tokens that each replica is believed to have to compute. A nil one parks nothing.
type routerQueue struct {
	RouterQueue
	simulation *simulation
	tokens     []int    // of each replica's requests before their first token
	parked     []parked // the next to be decided first
	pushed     int
}

// parked is a request that waits.
type parked struct {
	flight *flight
	key    float64 // the lowest is decided first, and of equal ones the first that came
}

func newRouterQueue(s *simulation) *routerQueue {
	if s.o.RouterQueue == nil {
		return nil
	}
	return &routerQueue{RouterQueue: *s.o.RouterQueue, simulation: s, tokens: make([]int, len(s.engines))}
}

// busy reports whether every replica that takes requests is busy.
func (q *routerQueue) busy() bool {
	some := false
	for k, tokens := range q.tokens {
		if q.simulation.dead[k] || q.simulation.away[k] {
			continue
		}
		if float64(tokens) <= q.Threshold*float64(q.simulation.o.Profile.Chunk) {
			return false
		}
		some = true
	}
	return some
}

// park keeps f if all replicas are busy, and reports whether it does.
func (q *routerQueue) park(f *flight) bool {
	if q == nil || !q.busy() {
		return false
	}
	q.pushed++
	key := float64(q.pushed)
	switch q.Order {
	case LCFS:
		key = -key
	case WSPT:
		key = float64(q.simulation.leastUncached(f))
	}
	at, _ := slices.BinarySearchFunc(q.parked, key, func(p parked, key float64) int {
		if p.key <= key {
			return -1
		}
		return 1
	})
	q.parked = slices.Insert(q.parked, at, parked{f, key})
	q.simulation.load.add(-1, 1)
	return true
}

// drain decides requests until all replicas are busy.
func (q *routerQueue) drain() {
	for q != nil && len(q.parked) > 0 && !q.busy() {
		f := q.parked[0].flight
		q.parked = q.parked[1:]
		q.simulation.load.add(-1, -1)
		q.simulation.choose(f)
	}
}

// sent counts f's tokens on its replica.
func (q *routerQueue) sent(f *flight, tokens int) {
	if q != nil && f.state == flightWaiting && f.replica >= 0 {
		f.uncached = tokens
		q.tokens[f.replica] += tokens
	}
}

// began is called when the router learns that f has had its first token, or has ended.
func (q *routerQueue) began(f *flight) {
	if q != nil && f.replica >= 0 {
		q.tokens[f.replica] -= f.uncached
		f.uncached = 0
	}
}

// leastUncached is the number of f's prompt tokens that the replica with most of the
// prompt has to compute, at least 1.
func (s *simulation) leastUncached(f *flight) int {
	r := s.decisionRequest(f)
	least := f.input
	for _, c := range f.agent.pool.Explain(&r).Candidates {
		if c.Cached != nil {
			least = min(least, f.input-*c.Cached)
		}
	}
	return max(1, least)
}
