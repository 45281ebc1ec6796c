package haproxy

import (
	"bytes"
	"errors"
	"net"
	"time"

	"pointsman/decider"
)

// The witness is the feed's closing lines once more, as UDP datagrams. An
// HAProxy that is reloaded keeps the requests it has, but its ring sends nothing
// from then on (2.6 to 3.2): of their ends only the datagrams tell. What the
// ring has told already they tell in vain.

// witnessDelay is how long a closing line of the ring may take after its
// datagram.
const witnessDelay = time.Second

// maxWitnessed bounds the datagrams that wait, newer ones are dropped.
const maxWitnessed = 32 << 10

// witnessed is an end told by a datagram at some time.
type witnessed struct {
	at      time.Time
	outcome decider.Outcome
}

// Witness reads datagrams from c until Close. It returns nil after Close.
func (f *Feed) Witness(c net.PacketConn) error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return c.Close()
	}
	f.packets = append(f.packets, c)
	f.mu.Unlock()
	if u, ok := c.(*net.UDPConn); ok {
		if err := u.SetReadBuffer(4 << 20); err != nil {
			f.log.Debug("feed datagrams", "error", err)
		}
	}
	b := make([]byte, maxLine)
	for {
		n, _, err := c.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			continue // of one datagram, such as an ICMP message
		}
		f.Witnessed(b[:n])
	}
}

// Witnessed takes in one datagram, for those who read the socket in the place of
// Witness. It reports whether it was a line of HAProxy's.
func (f *Feed) Witnessed(datagram []byte) bool {
	l, ok := parse(datagram)
	if !ok || l.event != closed {
		return ok
	}
	o := l.outcome()
	o.Server = bytes.Clone(o.Server)
	f.mu.Lock()
	if len(f.witnessed) < maxWitnessed {
		f.witnessed = append(f.witnessed, witnessed{time.Now(), o})
	}
	f.mu.Unlock()
	return true
}

// Recover ends the reservations of which only a datagram has told the end. The
// owner calls it every second or so.
func (f *Feed) Recover(now time.Time) {
	f.mu.Lock()
	n := 0
	for n < len(f.witnessed) && now.Sub(f.witnessed[n].at) >= witnessDelay {
		n++
	}
	due := f.witnessed[:n:n]
	f.witnessed = f.witnessed[n:]
	if len(f.witnessed) == 0 {
		f.witnessed = nil // and with it what its array holds
	}
	f.mu.Unlock()
	for _, w := range due {
		if f.decider.FinishedIfReserved(w.outcome) {
			f.Recovered.Inc()
		}
	}
}
