package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/cespare/xxhash/v2"

	"pointsman/engine/zmtp"
)

// Bounds of the pause before a connection is made again; it doubles. Each varies
// by jitter, so that engines are not all dialled at once.
const (
	firstBackOff = time.Second
	lastBackOff  = 30 * time.Second
	jitter       = 0.1
)

const (
	// dialTimeout bounds connecting and greeting, replayTimeout a whole replay.
	dialTimeout   = 2 * time.Second
	replayTimeout = 10 * time.Second
	// quiet is how long no event comes before a replay is asked for, to see
	// whether the last ones were lost.
	quiet = 10 * time.Second
	// offline is how long the pool goes by what an engine said that is not
	// connected any more.
	offline = 5 * time.Second
)

// lastNumber ends a replay.
const lastNumber = ^uint64(0)

// blockFollower follows the events of one rank.
type blockFollower struct {
	rank   *blockRank
	events string // host:port
	replay string // host:port; "" = there is none
	log    func(msg string, err error)
	ask    func(ctx context.Context) error // askReplay, but for tests
	armed  time.Time                       // when the connection's deadline was last set

	retry time.Time     // when what is missing is asked for again
	pause time.Duration // before the time after that
}

// Bounds of the pause before what is missing is asked for again; it doubles.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// run follows until ctx ends. It connects again for ever.
func (f *blockFollower) run(ctx context.Context) {
	defer f.rank.of.forget(f.rank)
	if f.ask == nil {
		f.ask = f.askReplay
	}
	var since time.Time // when the connection was lost
	for failures := 0; ctx.Err() == nil; failures++ {
		d := net.Dialer{Timeout: dialTimeout}
		conn, err := d.DialContext(ctx, "tcp", f.events)
		if err == nil {
			var worked bool
			worked, err = f.follow(ctx, conn)
			if worked {
				failures, since = 0, time.Now()
			}
		}
		if ctx.Err() != nil {
			break
		}
		if failures == 0 {
			f.log("KV-cache events are lost; caches are predicted meanwhile", err)
		}
		pause := lastBackOff
		if failures < 6 {
			pause = firstBackOff << failures
		}
		pause = time.Duration(float64(pause) * (1 - jitter + 2*jitter*rand.Float64()))
		for start := time.Now(); ctx.Err() == nil && time.Since(start) < pause; {
			if time.Since(since) > offline {
				f.rank.of.end()
			}
			wait(ctx, min(time.Second, pause-time.Since(start)))
		}
	}
	f.rank.of.end()
}

// follow subscribes over conn and takes events in until that ends. It reports
// whether it got so far as to hear of any.
func (f *blockFollower) follow(ctx context.Context, conn net.Conn) (worked bool, err error) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	peer, err := zmtp.NewConn(conn, "SUB", dialTimeout)
	if err != nil {
		return false, err
	}
	if err := peer.Subscribe(); err != nil {
		return false, err
	}
	return true, f.take(ctx, peer, nil)
}

// take takes events in until the connection ends; frames are of a message that
// has come already, if any.
func (f *blockFollower) take(ctx context.Context, peer *zmtp.Conn, frames [][]byte) (err error) {
	m := f.rank.of
	m.online(1)
	defer m.online(-1)
	m.begin()
	f.armed = time.Time{}
	for unsure := f.connected(ctx); ; unsure = false {
		if frames == nil {
			if frames, err = f.nextMessage(ctx, peer); err != nil {
				return err
			}
		}
		if n := len(frames); n >= 2 && len(frames[n-2]) == 8 {
			f.live(ctx, binary.BigEndian.Uint64(frames[n-2]), frames[n-1], unsure)
			f.complete(ctx)
		}
		frames = nil
	}
}

// connected asks for what was missed, as soon as a subscription stands. Where
// there is no replay, the number of the next batch must tell whether anything
// was: then it reports unsure.
func (f *blockFollower) connected(ctx context.Context) (unsure bool) {
	r := f.rank
	heard := r.heard()
	if r.behind {
		r.drift()
	}
	if err := f.catchUp(ctx); err == nil || !heard {
		return false
	}
	if f.replay != "" {
		r.drift()
		return false
	}
	return true
}

// live takes in a batch from the subscription. unsure tells that the engine may
// have been started anew since the last one.
func (f *blockFollower) live(ctx context.Context, number uint64, payload []byte, unsure bool) {
	r := f.rank
	if r.adrift {
		r.land(number)
	}
	if unsure && number < r.accounts[present].next {
		r.restarted()
	}
	if number > r.accounts[present].next {
		f.fill(ctx, number)
	}
	if number == r.accounts[present].next { // else it came in a replay
		if err := r.take(number, payload); err != nil {
			f.log("KV-cache events are not understood", err)
		}
	}
}

// fill tries to get the batches that are missing before number.
func (f *blockFollower) fill(ctx context.Context, number uint64) {
	r := f.rank
	r.of.mu.Lock()
	r.of.view.Gaps++
	r.of.mu.Unlock()
	_ = f.catchUp(ctx)
	if number > r.accounts[present].next {
		r.lose(number, f.replay != "")
	}
}

// complete asks again for what is missing, now and then.
func (f *blockFollower) complete(ctx context.Context) {
	if f.rank.behind && !time.Now().Before(f.retry) {
		_ = f.catchUp(ctx)
	}
}

// nextMessage waits for a message. When none comes for long it looks whether
// any was lost.
func (f *blockFollower) nextMessage(ctx context.Context, peer *zmtp.Conn) ([][]byte, error) {
	for {
		// Where messages follow one another the deadline need not be put off by
		// each of them.
		now := time.Now()
		if f.rank.behind || now.Sub(f.armed) > quiet/10 {
			until := now.Add(quiet)
			if f.rank.behind && f.retry.Before(until) {
				until = f.retry
			}
			if err := peer.SetReadDeadline(until); err != nil {
				return nil, err
			}
			f.armed = now
		}
		err := peer.Wait()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = f.catchUp(ctx)
			f.armed = time.Time{}
			continue
		}
		if err == nil && f.rank.behind { // the rest of the message has time
			err = peer.SetReadDeadline(time.Now().Add(quiet))
		}
		if err != nil {
			return nil, err
		}
		return peer.Receive()
	}
}

// errNoReplay tells that past events are not to be had.
var errNoReplay = errors.New("no replay of past events")

// catchUp takes in what the engine published after the last batch before which
// none is missing. That one is asked for as well: if it is another one now, the
// engine has been started anew, and all there is comes from its first batch on.
func (f *blockFollower) catchUp(ctx context.Context) error {
	if f.replay == "" {
		return errNoReplay
	}
	err := f.ask(ctx)
	if errors.Is(err, errRestarted) {
		f.rank.restarted()
		err = f.ask(ctx)
	}
	if err == nil && !f.rank.behind {
		f.pause = 0
	} else {
		f.pause = min(max(2*f.pause, firstRetry), lastRetry)
	}
	f.retry = time.Now().Add(f.pause)
	return err
}

// askReplay asks for a replay and takes it in.
func (f *blockFollower) askReplay(ctx context.Context) error {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", f.replay)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	peer, err := zmtp.NewConn(conn, "DEALER", dialTimeout)
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(replayTimeout)); err != nil {
		return err
	}
	past := f.rank.replay()
	if err := peer.Send(nil, binary.BigEndian.AppendUint64(nil, past.from)); err != nil {
		return err
	}
	for {
		frames, err := peer.Receive()
		if err != nil {
			return err
		}
		// An empty frame, a topic in newer versions, number and payload.
		n := len(frames)
		if n < 3 || n > 4 || len(frames[n-2]) != 8 {
			return errEvents
		}
		number, payload := binary.BigEndian.Uint64(frames[n-2]), frames[n-1]
		if number == lastNumber && len(payload) == 0 {
			return past.end()
		}
		if err := past.batch(number, payload); err != nil {
			return err
		}
	}
}

// replay takes in the batches of one replay.
type replay struct {
	rank   *blockRank
	behind bool   // there is a book
	from   uint64 // the first batch that is asked for
	last   bool   // that one has been taken in before
	some   bool   // a batch has come
	first  uint64 // its number
}

// replay begins a replay from the last batch on before which none is missing.
func (r *blockRank) replay() replay {
	p := replay{rank: r, behind: r.behind, from: r.last().next}
	if p.last = p.from > 0 && !r.last().anew; p.last {
		p.from--
	}
	return p
}

func (p *replay) batch(number uint64, payload []byte) error {
	r, a, first := p.rank, p.rank.last(), !p.some
	if first {
		p.some, p.first = true, number
	}
	switch {
	case first && p.last && number == p.from:
		if xxhash.Sum64(payload) != a.sum {
			return errRestarted
		}
		r.confirm(number)
		return nil
	case number < a.next && p.behind:
		return nil // it was kept, and the book has caught up with it
	case number < a.next:
		return errRestarted // it was asked for later ones
	case r.behind:
		return r.replayed(number, payload, p.first)
	case number > a.next:
		r.lose(number, false) // more was published than is kept
	}
	return r.take(number, payload)
}

// end is called when all batches have come.
func (p *replay) end() error {
	if p.last && !p.some {
		return errRestarted // not even the last one is there
	}
	p.rank.caughtUp()
	return nil
}
