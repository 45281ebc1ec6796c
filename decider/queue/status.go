package queue

import "time"

// BandStatus is one band at one moment.
type BandStatus struct {
	Name   string  `json:"name"`
	Queued int     `json:"queued"`
	Bytes  int     `json:"bytes"`
	Tokens int     `json:"tokens"`
	Oldest float64 `json:"oldest_s"`
	// Counts are by class of tenants: OtherTenants and those with a share.
	Counts map[string]CountStatus `json:"counts"`
}

// CountStatus is a Count for people.
type CountStatus struct {
	Held        uint64            `json:"held"`
	Admitted    uint64            `json:"bound"`
	Gone        uint64            `json:"client_gone"`
	Spilled     uint64            `json:"spilled"`
	Refused     map[string]uint64 `json:"shed"`
	Waits       []uint64          `json:"-"` // by WaitBounds
	WaitSeconds float64           `json:"wait_s"`
}

// Status is the state of each band, with its counts.
func (q *Queue[T]) Status(c *Counters, now time.Duration) []BandStatus {
	list := make([]BandStatus, len(q.bands))
	oldest := make([]time.Duration, len(q.bands))
	for i := range oldest {
		oldest[i] = now
	}
	for _, it := range q.byID {
		oldest[it.Band] = min(oldest[it.Band], it.At)
	}
	for i := range q.bands {
		b := &q.bands[i]
		list[i] = BandStatus{
			Name: q.Settings.bands[i].Name, Queued: b.n, Bytes: b.bytes, Tokens: int(b.work),
			Oldest: (now - oldest[i]).Seconds(), Counts: c.status(i),
		}
	}
	return list
}

// status is the counts of a band by the names of the classes.
func (c *Counters) status(band int) map[string]CountStatus {
	m := make(map[string]CountStatus, len(c.names))
	for k := range c.counts[band] {
		n := &c.counts[band][k]
		refused := make(map[string]uint64, len(n.Refused))
		for why, x := range n.Refused {
			refused[Reason(why).String()] = x
		}
		m[c.names[k]] = CountStatus{
			Held: n.Held, Admitted: n.Admitted, Gone: n.Gone, Spilled: n.Spilled, Refused: refused,
			Waits: append([]uint64{}, n.Waits[:]...), WaitSeconds: n.Seconds,
		}
	}
	return m
}
