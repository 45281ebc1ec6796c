package link

import "fmt"

// Fault is a mistake in a proxy's configuration that keeps the agent from doing its work,
// as shown by the proxy's questions and reports.
type Fault int

// The faults.
const (
	Nameless Fault = iota // questions without an id
	Cut                   // bodies that were cut although the proxy's buffer had room
	Unserved              // requests that failed where there was no decision
	Lost                  // requests that the proxy answered by itself, since nothing asked
	faults
)

// aboutFaults has the name of each fault, the problem, and where to look.
var aboutFaults = [faults]struct{ name, problem, remedy string }{
	Nameless: {"nameless", "%d questions came without an id, so their outcomes cannot be matched", "http-request set-var(txn.pm.rid) uuid() must come before send-spoe-group"},
	Cut:      {"cut", "%d bodies were cut although there was room for more", "http-request wait-for-body must come before send-spoe-group, and tune.bufsize be what `pointsman render haproxy` says"},
	Unserved: {"unserved", "%d requests without a decision ended as 502", "what serves without the agent does not work: is $pm_own one of your upstreams?"},
	Lost:     {"lost", "nginx answered %d POSTs with 500 by itself", "nginx-server.conf must be included in the server of the location that asks"},
}

// enough is how many signs make a fault: a client may stop in mid-body, and a replica may
// fail.
const enough = 3

// String is the fault's name.
func (f Fault) String() string { return aboutFaults[f].name }

// Remedy says where to look.
func (f Fault) Remedy() string { return aboutFaults[f].remedy }

// Saw counts a sign of a fault.
func (l *Link) Saw(f Fault) { l.faults[f].Add(1) }

// Found is a fault that was seen often enough.
type Found struct {
	Fault   string `json:"fault"`
	Problem string `json:"problem"`
	Remedy  string `json:"remedy"`
	Count   uint64 `json:"count"`
}

// found lists the faults that were seen often enough.
func (l *Link) found() (list []Found) {
	for f := range faults {
		if n := l.faults[f].Load(); n >= enough {
			list = append(list, Found{f.String(), fmt.Sprintf(aboutFaults[f].problem, n), f.Remedy(), n})
		}
	}
	return list
}

// Undecided notes that a question was answered without a replica, and Excused
// reports, once for each of these, that a request without one was asked about.
func (l *Link) Undecided() { l.undecided.Add(1) }

// Excused is the counterpart of Undecided.
func (l *Link) Excused() bool {
	for {
		n := l.undecided.Load()
		if n == 0 {
			return false
		}
		if l.undecided.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// Unasked counts a request that should have been asked about and was not. HAProxy does not
// ask about a POST without a body, so it reports true only if most requests are unasked.
func (l *Link) Unasked() bool {
	return l.unasked.Add(1) > 2*l.asked.Load()+2
}
