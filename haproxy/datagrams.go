package haproxy

import (
	"bytes"
	"errors"
	"net"
	"time"

	"pointsman/decider"
	"pointsman/listen"
)

// The datagram feed carries the feed's closing lines a second time, as
// datagrams. An HAProxy that is reloaded finishes the requests that it has, but its
// ring sends nothing from then on (2.6 to 3.2), so only the datagrams report their
// ends. A datagram whose line the ring has delivered changes nothing.

// datagramDelay is how much later than its datagram a closing line of the ring may
// arrive.
const datagramDelay = time.Second

// maxPendingEnds bounds the datagrams that wait. Newer ones are dropped.
const maxPendingEnds = 32 << 10

// pendingEnd is the end of a request that a datagram has reported.
type pendingEnd struct {
	at      time.Time
	outcome decider.Outcome
}

// ServeDatagrams reads datagrams from c until Close. It returns nil after Close.
func (f *Feed) ServeDatagrams(c net.PacketConn) error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return c.Close()
	}
	f.packets = append(f.packets, c)
	f.mu.Unlock()
	if u, ok := c.(interface{ SetReadBuffer(int) error }); ok {
		if err := u.SetReadBuffer(4 << 20); err != nil {
			f.log.Debug("feed datagrams", "error", err)
		}
	}
	in, b := listen.NewDatagrams(c), make([]byte, maxLine)
	for {
		n, err := in.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			continue // concerns one datagram, such as an ICMP message
		}
		f.HandleDatagram(b[:n])
	}
}

// HandleDatagram handles one datagram. It is for callers that read the socket
// themselves, instead of ServeDatagrams. It reports whether the datagram was a line
// of HAProxy's.
func (f *Feed) HandleDatagram(datagram []byte) bool {
	l, ok := parse(datagram)
	if !ok || l.event != closed {
		return ok
	}
	o := l.outcome()
	o.Server = bytes.Clone(o.Server)
	f.mu.Lock()
	if len(f.pendingEnds) < maxPendingEnds {
		f.pendingEnds = append(f.pendingEnds, pendingEnd{time.Now(), o})
	}
	f.mu.Unlock()
	return true
}

// Recover ends the reservations whose end only a datagram has reported. The owner
// calls it about every second.
func (f *Feed) Recover(now time.Time) {
	f.mu.Lock()
	n := 0
	for n < len(f.pendingEnds) && now.Sub(f.pendingEnds[n].at) >= datagramDelay {
		n++
	}
	due := f.pendingEnds[:n:n]
	f.pendingEnds = f.pendingEnds[n:]
	if len(f.pendingEnds) == 0 {
		f.pendingEnds = nil // and with it what its array holds
	}
	f.mu.Unlock()
	for _, w := range due {
		if f.decider.FinishedIfReserved(w.outcome) {
			f.Recovered.Inc()
		}
	}
}
