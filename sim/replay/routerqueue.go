package replay

import (
	"container/heap"
	"errors"
	"math"
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

var errRouterQueue = errors.New("want a threshold in steps, and perhaps an order, such as 16 or 16,wspt; orders are fcfs, lcfs and wspt")

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
	if q.Threshold, err = strconv.ParseFloat(threshold, 64); err != nil || !(q.Threshold >= 0) || math.IsInf(q.Threshold, 0) {
		return nil, errRouterQueue
	}
	if q.Order != FCFS && q.Order != LCFS && q.Order != WSPT {
		return nil, errRouterQueue
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
// queue. It is an error if there is none.
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
		return nil, errors.New("a router queue is Dynamo's: want the policy kv_cost")
	}
	return list, nil
}

// routerQueue holds the requests of a RouterQueue. It knows what the router does: the
// tokens that it believes each replica has to compute.
type routerQueue struct {
	RouterQueue
	simulation *simulation
	tokens     []int // of each replica's requests before their first token
	parked     parked
	pushed     int
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
	if !q.busy() {
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
	heap.Push(&q.parked, &waiting{f, key, q.pushed})
	q.simulation.load.add(-1, 1)
	return true
}

// drain decides requests until all replicas are busy.
func (q *routerQueue) drain() {
	for q != nil && len(q.parked) > 0 && !q.busy() {
		f := heap.Pop(&q.parked).(*waiting).flight
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

// waiting is a parked request.
type waiting struct {
	flight *flight
	key    float64 // the lowest is decided first
	order  int
}

// parked implements heap.Interface.
type parked []*waiting

func (p parked) Len() int { return len(p) }
func (p parked) Less(i, j int) bool {
	return p[i].key < p[j].key || p[i].key == p[j].key && p[i].order < p[j].order
}
func (p parked) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *parked) Push(x any)   { *p = append(*p, x.(*waiting)) }
func (p *parked) Pop() any {
	last := len(*p) - 1
	w := (*p)[last]
	*p = (*p)[:last]
	return w
}
