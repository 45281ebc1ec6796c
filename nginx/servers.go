package nginx

import (
	"strings"
	"sync/atomic"

	"pointsman/decider"
	"pointsman/templates"
)

// Servers translates between the decider's replicas and nginx's names for them: an
// upstream for a replica that the configuration lists, the address for any other.
// It is safe for concurrent use; Refresh keeps it up to date.
type Servers struct {
	decider *decider.Decider
	table   atomic.Pointer[serverTable]
}

// NewServers returns the table of d's replicas as they are now.
func NewServers(d *decider.Decider) *Servers {
	s := &Servers{decider: d}
	s.Refresh()
	return s
}

// serverTable is immutable.
type serverTable struct {
	upstreams  map[replicaKey]string // nginx's names
	byUpstream map[string]place
	byAddress  map[string][]place // several where pools share a server
}

type replicaKey struct{ pool, replica string }

// place is a replica, or with replica "" its pool as a whole.
type place struct {
	pool    *decider.Pool
	replica string
}

// Refresh rebuilds the table from the current replicas. The owner calls it after a
// change of the configuration, and about every second.
func (s *Servers) Refresh() {
	t := &serverTable{upstreams: map[replicaKey]string{}, byUpstream: map[string]place{}, byAddress: map[string][]place{}}
	for _, p := range s.decider.Pools() {
		for _, r := range p.Status().Replicas {
			word := r.Address
			if r.Listed {
				all := templates.NginxUpstream(p.Name(), "")
				t.upstreams[replicaKey{p.Name(), ""}] = all
				t.byUpstream[all] = place{p, ""}
				if !strings.Contains(r.Name, ":") {
					word = templates.NginxUpstream(p.Name(), r.Name)
				}
			}
			if word == "" {
				continue // its address is not known yet
			}
			t.upstreams[replicaKey{p.Name(), r.Name}] = word
			t.byUpstream[word] = place{p, r.Name}
			t.byAddress[r.Address] = append(t.byAddress[r.Address], place{p, r.Name})
		}
	}
	s.table.Store(t)
}

// upstream is nginx's name of the replica, or with replica "" of the pool; "" if it
// has none.
func (t *serverTable) upstream(pool, replica string) string {
	return t.upstreams[replicaKey{pool, replica}]
}

// at finds the replica at an address, preferably in the pool, and of several there, which
// are the ranks of one engine, the one that was decided.
func (t *serverTable) at(address []byte, pool *decider.Pool, decided string) (place, bool) {
	all := t.byAddress[string(address)]
	for _, p := range all {
		if p.pool == pool && p.replica == decided {
			return p, true
		}
	}
	for _, p := range all {
		if p.pool == pool {
			return p, true
		}
	}
	if len(all) > 0 {
		return all[0], true
	}
	return place{}, false
}
