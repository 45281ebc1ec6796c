package decider

import (
	"time"

	"pointsman/decider/queue"
)

// AdmissionStatus is a pool's queue at one moment.
type AdmissionStatus struct {
	Hold      bool               `json:"hold"` // false: the proxy queues
	Matching  string             `json:"matching"`
	NoReplica bool               `json:"awaits_replica"` // no replica is open, and requests are held until one is
	Bands     []queue.BandStatus `json:"bands"`
	Saturated int                `json:"saturated"` // open replicas without capacity
	Wait      float64            `json:"expected_wait_s"`
}

// status is the admission as it is now, nil without one.
func (a *admission) status(now time.Duration) *AdmissionStatus {
	if !a.on() {
		return nil
	}
	p := a.pool
	s := &AdmissionStatus{Hold: a.Hold, Matching: "out_of_order", NoReplica: a.holdsWithoutReplica(now), Bands: a.queue.Status(a.counts, now)}
	if a.FIFO {
		s.Matching = "fifo"
	}
	for _, i := range p.open {
		if a.capacity.saturation(p.replicas[i], now) != "" {
			s.Saturated++
		}
	}
	if !a.Hold {
		for i := range s.Bands {
			s.Bands[i].Queued = a.proxy.Waiting(i, p.places())
		}
	}
	s.Wait = a.wait(a.Len() - 1).Seconds()
	return s
}

// Place is where a request would stand in the queue.
type Place struct {
	Band      string  `json:"band"`
	Class     string  `json:"tenants"`
	Deadline  float64 `json:"deadline_s,omitempty"`     // from now
	Ahead     int     `json:"ahead"`                    // requests of its band and of those before
	Wait      float64 `json:"expected_wait_s"`          // without the time until a replica comes
	NoReplica bool    `json:"awaits_replica,omitempty"` // as AdmissionStatus.NoReplica
}

// placeOf is where r would stand, nil without an admission.
func (a *admission) placeOf(r *Request, now time.Duration) *Place {
	if !a.on() {
		return nil
	}
	band := a.Clamp(r.Band)
	x := &Place{Band: a.Band(band).Name, Class: a.Class(r.Tenant), Wait: a.wait(band).Seconds(), NoReplica: a.holdsWithoutReplica(now)}
	if r.Deadline > 0 {
		x.Deadline = (r.Deadline - now).Seconds()
	}
	if a.Hold {
		x.Ahead = a.queue.Ahead(band)
	} else {
		x.Ahead = a.proxy.Excess(band, a.pool.places())
	}
	return x
}
