package decider

import (
	"math"
	"strconv"
	"time"
)

// members are the replicas of a pool, with facts about all of them together. It lives under
// the pool's lock.
type members struct {
	replicas []*Replica
	byName   map[string]*Replica

	open         []int         // indexes of the replicas that take requests
	prefillers   []int         // and of those that take the legs of requests
	unlimited    bool          // no limit is set: open is all there is to know
	slowStart    time.Duration // a replica that came up takes its full share after this
	slowUntil    time.Duration // when the last slow start ends
	ejectedUntil time.Duration // when the last ejection ends
	calmUntil    time.Duration // soft evidence ejects none before; see ejectSoftly
	suspects     int           // replicas that have failed and not been seen to work since
	anyLists     bool          // some engine has listed its adapters
}

// set makes list the membership. The indexes of those that left become -1.
func (m *members) set(list []*Replica) {
	for _, r := range m.replicas {
		r.index = -1
	}
	assignSlots(list, m.replicas)
	clear(m.byName)
	m.suspects = 0
	for i, r := range list {
		if r.suspect() {
			m.suspects++
		}
		r.index = i
		m.byName[r.name] = r
	}
	m.replicas = list
}

// configured are the replicas of c, and those that were discovered before if c
// leaves the membership to the proxy. Replicas that keep their name keep their
// state.
func (m *members) configured(c PoolConfig, now time.Duration) []*Replica {
	keep := m.replicas[:0:0]
	seen := map[string]bool{}
	for _, rc := range c.Replicas {
		r := m.byName[rc.Name]
		if r == nil {
			r = &Replica{name: rc.Name, since: now, weight: max(rc.Weight, 1)}
		}
		if !r.listed {
			r.listed, r.down, r.draining = true, false, false
		}
		r.address, r.zone, r.node, r.role = rc.Address, rc.Zone, rc.Node, rc.Role
		if r.rank = ""; rc.Rank > 0 {
			r.rank = strconv.Itoa(rc.Rank - 1)
		}
		r.limit = rc.Limit
		if r.limit == 0 {
			r.limit = c.Limit
		}
		if rc.Weight > 0 {
			r.weight = rc.Weight
		}
		r.cacheTokens = rc.CacheTokens
		if r.signals.CacheTokens > 0 {
			r.cacheTokens = r.signals.CacheTokens
		}
		keep, seen[rc.Name] = append(keep, r), true
	}
	if c.Discover {
		for _, r := range m.replicas {
			if !seen[r.name] && !r.listed {
				r.limit, r.cacheTokens = c.Limit, r.signals.CacheTokens
				keep = append(keep, r)
			}
		}
	}
	return keep
}

// evenWeights reports whether all weights are equal.
func (m *members) evenWeights() bool {
	for _, r := range m.replicas {
		if r.weight != m.replicas[0].weight {
			return false
		}
	}
	return true
}

// updateOpen recomputes open after the state of a replica has changed. limits
// reports whether replicas at their limits are left out of the choice.
func (m *members) updateOpen(limits bool) {
	m.open, m.prefillers, m.unlimited, m.slowUntil = m.open[:0], m.prefillers[:0], true, 0
	for i, r := range m.replicas {
		if !r.open() {
			continue
		}
		if r.role == RolePrefill {
			m.prefillers = append(m.prefillers, i)
			continue
		}
		m.open = append(m.open, i)
		if r.limit > 0 && limits {
			m.unlimited = false
		}
		m.slowUntil = max(m.slowUntil, r.since+m.slowStart)
	}
}

// settled reports whether no replica is ejected, suspect or starting slowly.
func (m *members) settled(now time.Duration) bool {
	return now >= m.ejectedUntil && m.suspects == 0 && now >= m.slowUntil
}

// serves reports whether r may get requests for an adapter. It may not if another replica
// lists the adapter, even one that is down, and r does not.
func (m *members) serves(r *Replica, adapter string) bool {
	if adapter == "" || !m.anyLists || r.lists == nil || listsName(r.lists, adapter) {
		return true
	}
	for _, other := range m.replicas {
		if listsName(other.lists, adapter) {
			return false
		}
	}
	return true
}

// adapterDown reports whether the replicas that list an adapter take no requests, while
// others do, which do not have it.
func (m *members) adapterDown(adapter string) bool {
	for _, i := range m.open {
		if m.serves(m.replicas[i], adapter) {
			return false
		}
	}
	return len(m.open) > 0
}

// anyServes reports whether some open replica may serve r, now or when it has
// capacity.
func (m *members) anyServes(r *Request) bool {
	for _, i := range m.open {
		if c := m.replicas[i]; (r.Exclude == "" || c.name != r.Exclude) && m.serves(c, r.LoRA) {
			return true
		}
	}
	return false
}

// places is how many requests the replicas take at a time.
func (m *members) places() (n int) {
	for _, i := range m.open {
		if m.replicas[i].limit == 0 {
			return math.MaxInt
		}
		n += m.replicas[i].limit
	}
	return n
}

// adapterDown is the reason that the replicas which have a request's adapter are
// down.
const adapterDown = "adapter_down"

// whyNone names the reason that no replica may be chosen for r.
func (m *members) whyNone(r *Request) string {
	switch {
	case len(m.replicas) == 0:
		return "no_replicas"
	case len(m.open) == 0:
		return "all_down"
	case m.adapterDown(r.LoRA):
		return adapterDown
	}
	return "all_full"
}

// assignSlots gives each replica of list, which replaces old, a slot: a small number that
// indexes tables beside the replicas. A replica keeps its slot as long as it is a member.
func assignSlots(list, old []*Replica) {
	was := map[*Replica]bool{}
	for _, r := range old {
		was[r] = true
	}
	taken := map[int]bool{}
	for _, r := range list {
		if was[r] {
			taken[r.slot] = true
		}
	}
	next := 0
	for _, r := range list {
		if was[r] {
			continue
		}
		for taken[next] {
			next++
		}
		r.slot = next
		taken[next] = true
	}
}
