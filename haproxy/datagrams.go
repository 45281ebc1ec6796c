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

// A line of a ring wakes the agent, so the datagram of the same line need not: the readers of
// rings read datagrams too. Other datagrams come from an HAProxy that stops, which closes its
// ring first, or that has lost its ring. So datagrams wake the agent while there is no ring, and
// for watchTime after one has ended or an end came as a datagram only. Few requests last longer.
const watchTime = 15 * time.Minute

// datagramPoll is how often datagrams are read that nothing woke the agent for.
const datagramPoll = 50 * time.Millisecond

// ServeDatagrams reads datagrams from c until Close. It returns nil after Close.
func (f *Feed) ServeDatagrams(c net.PacketConn) error {
	if u, ok := c.(interface{ SetReadBuffer(int) error }); ok {
		if err := u.SetReadBuffer(4 << 20); err != nil {
			f.log.Debug("feed datagrams", "error", err)
		}
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return c.Close()
	}
	if _, udp := c.(*net.UDPConn); udp { // one of unix holds ten datagrams only: they cannot wait
		if p, err := listen.NewPolled(c, maxLine); err == nil {
			f.polled = append(f.polled, p)
			f.mu.Unlock()
			return p.Serve(f.datagramPoll, f.onDatagram)
		}
	}
	f.packets = append(f.packets, c)
	f.mu.Unlock()
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

// drain reads the datagrams that nothing woke the agent for.
func (f *Feed) drain() {
	f.mu.Lock()
	polled := f.polled
	f.mu.Unlock()
	for _, p := range polled {
		if !p.Watched() {
			p.Drain(f.onDatagram)
		}
	}
}

// watch decides whether datagrams wake the agent.
func (f *Feed) watch(now time.Time) {
	f.watching.Lock()
	defer f.watching.Unlock()
	f.mu.Lock()
	on, polled := len(f.conns) == 0 || now.Before(f.watchUntil), f.polled
	f.mu.Unlock()
	for _, p := range polled {
		if err := p.Watch(on); err != nil {
			f.log.Warn("feed datagrams", "error", err)
		}
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
			f.mu.Lock()
			f.watchUntil = now.Add(watchTime)
			f.mu.Unlock()
		}
	}
	f.watch(now)
}
