package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"pointsman/engine/zmtp"
)

// The pause before reconnecting doubles from firstBackOff to lastBackOff. It varies
// by the share jitter, so that engines are not all dialled at once.
const (
	firstBackOff = time.Second
	lastBackOff  = 30 * time.Second
	jitter       = 0.1
)

const (
	// dialTimeout bounds connecting, greeting and each write, replayTimeout a whole
	// replay.
	dialTimeout   = 2 * time.Second
	replayTimeout = 10 * time.Second
	// replayAfter is how long no event arrives before a replay is requested, to find
	// out whether the last ones were lost.
	replayAfter = 10 * time.Second
	// offlineAfter is how long the pool keeps using the events of an engine after its
	// connection broke.
	offlineAfter = 5 * time.Second
)

// lastNumber marks the end of a replay.
const lastNumber = ^uint64(0)

// subscriber follows the events of one rank. One goroutine uses it.
type subscriber struct {
	rank        *rankIndex
	events      string // host:port
	replay      string // host:port; "" = none
	log         func(msg string, err error)
	replayer    func(ctx context.Context) error // replayOnce, except in tests
	deadlineSet time.Time                       // when the read deadline was last set

	retryAt    time.Time     // when to request a replay of missing batches again
	retryPause time.Duration // the pause before that
}

// The pause before another request for missing batches doubles within these bounds.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// run follows until ctx ends. It reconnects for ever.
func (f *subscriber) run(ctx context.Context) {
	defer f.rank.index.removeRank(f.rank)
	if f.replayer == nil {
		f.replayer = f.replayOnce
	}
	var lostAt time.Time // when the connection broke
	if f.rank.hasBatches() {
		lostAt = time.Now() // before the agent's restart
		f.rank.index.startFollowing()
	}
	for failures := 0; ctx.Err() == nil; failures++ {
		d := net.Dialer{Timeout: dialTimeout}
		conn, err := d.DialContext(ctx, "tcp", f.events)
		if err == nil {
			var subscribed bool
			subscribed, err = f.subscribe(ctx, conn)
			if subscribed {
				failures, lostAt = 0, time.Now()
			}
		}
		if ctx.Err() != nil {
			break
		}
		if failures == 0 {
			f.log("no KV-cache events; the cache is predicted meanwhile", err)
		}
		pause := lastBackOff
		if failures < 6 {
			pause = firstBackOff << failures
		}
		pause = time.Duration(float64(pause) * (1 - jitter + 2*jitter*rand.Float64()))
		for start := time.Now(); ctx.Err() == nil && time.Since(start) < pause; {
			if time.Since(lostAt) > offlineAfter {
				f.rank.index.stopFollowing()
			}
			wait(ctx, min(time.Second, pause-time.Since(start)))
		}
	}
	f.rank.index.stopFollowing()
}

// subscribe subscribes over conn and applies events until the connection ends. It
// reports whether the subscription succeeded.
func (f *subscriber) subscribe(ctx context.Context, conn net.Conn) (subscribed bool, err error) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	peer, err := zmtp.NewConn(conn, "SUB", dialTimeout)
	if err != nil {
		return false, err
	}
	if err := peer.Subscribe(); err != nil {
		return false, err
	}
	return true, f.receive(ctx, peer, nil)
}

// receive applies events until the connection ends. frames is a message that has
// already arrived, if any.
func (f *subscriber) receive(ctx context.Context, peer *zmtp.Conn, frames [][]byte) (err error) {
	x := f.rank.index
	x.addOnline(1)
	defer x.addOnline(-1)
	x.startFollowing()
	f.deadlineSet = time.Time{}
	for unsure := f.onConnect(ctx); ; unsure = false {
		if frames == nil {
			if frames, err = f.nextMessage(ctx, peer); err != nil {
				return err
			}
		}
		if n := len(frames); n >= 2 && len(frames[n-2]) == 8 {
			f.onBatch(ctx, binary.BigEndian.Uint64(frames[n-2]), frames[n-1], unsure)
			f.retryReplay(ctx)
		}
		frames = nil
	}
}

// onConnect requests what was missed, right after subscribing. Without a replay
// socket only the number of the next batch can show whether anything was missed:
// then unsure is true.
func (f *subscriber) onConnect(ctx context.Context) (unsure bool) {
	r := f.rank
	hadBatches := r.hasBatches()
	if r.confirming {
		r.disconnect()
	}
	if err := f.requestReplay(ctx); err == nil || !hadBatches {
		return false
	}
	if f.replay != "" {
		r.disconnect()
		return false
	}
	return true
}

// onBatch applies a batch from the subscription. unsure means that the engine may
// have restarted since the last one.
func (f *subscriber) onBatch(ctx context.Context, number uint64, payload []byte, unsure bool) {
	r := f.rank
	if r.disconnected {
		r.resync(number)
	}
	if unsure && number < r.snapshots[live].next {
		r.engineRestarted()
	}
	if number == 1 && !r.hasBatches() && f.replay == "" {
		r.countFrom1()
	}
	if number > r.snapshots[live].next {
		f.fillGap(ctx, number)
	}
	if number == r.snapshots[live].next { // else a replay has delivered it
		if err := r.applyLive(number, payload); err != nil {
			f.log("cannot read KV-cache events", err)
		}
	}
}

// fillGap requests the batches that are missing before number.
func (f *subscriber) fillGap(ctx context.Context, number uint64) {
	r := f.rank
	r.index.mu.Lock()
	r.index.status.Gaps++
	r.index.mu.Unlock()
	_ = f.requestReplay(ctx)
	if number > r.snapshots[live].next {
		r.lostBefore(number, f.replay != "")
	}
}

// retryReplay requests missing batches again when it is time.
func (f *subscriber) retryReplay(ctx context.Context) {
	if f.rank.confirming && !time.Now().Before(f.retryAt) {
		_ = f.requestReplay(ctx)
	}
}

// nextMessage waits for a message. If none arrives for long, it requests a replay, in case
// the last one was lost.
func (f *subscriber) nextMessage(ctx context.Context, peer *zmtp.Conn) ([][]byte, error) {
	for {
		// While messages arrive in quick succession, not every one moves the deadline.
		now := time.Now()
		if f.rank.confirming || now.Sub(f.deadlineSet) > replayAfter/10 {
			until := now.Add(replayAfter)
			if f.rank.confirming && f.retryAt.Before(until) {
				until = f.retryAt
			}
			if err := peer.SetReadDeadline(until); err != nil {
				return nil, err
			}
			f.deadlineSet = now
		}
		err := peer.Wait()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = f.requestReplay(ctx)
			f.deadlineSet = time.Time{}
			continue
		}
		if err == nil && f.rank.confirming { // leave time for the rest of the message
			err = peer.SetReadDeadline(time.Now().Add(replayAfter))
		}
		if err != nil {
			return nil, err
		}
		return peer.Receive()
	}
}
