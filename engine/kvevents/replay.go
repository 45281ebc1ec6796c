package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"time"

	"github.com/cespare/xxhash/v2"

	"pointsman/engine/zmtp"
)

// errNoReplay means that the engine has no replay socket.
var errNoReplay = errors.New("no replay of past events")

// requestReplay requests the batches after the last one that follows all others
// without a gap, and applies them. It requests that one, too: if it differs now,
// the engine has restarted, and a second request starts at batch 0.
func (f *subscriber) requestReplay(ctx context.Context) error {
	if f.replay == "" {
		return errNoReplay
	}
	err := f.replayer(ctx)
	if errors.Is(err, errRestarted) {
		f.rank.engineRestarted()
		err = f.replayer(ctx)
	}
	if err == nil && !f.rank.confirming {
		f.retryPause = 0
	} else {
		f.retryPause = min(max(2*f.retryPause, firstRetry), lastRetry)
	}
	f.retryAt = time.Now().Add(f.retryPause)
	return err
}

// replayOnce requests one replay and applies it.
func (f *subscriber) replayOnce(ctx context.Context) error {
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
	past := f.rank.newReplay()
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
			return errFormat
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

// replay applies the batches of one replay. One goroutine uses it.
type replay struct {
	rank       *rankIndex
	confirming bool   // there was a confirmed snapshot when it began
	from       uint64 // number of the first batch requested
	verify     bool   // that batch has been applied before: its hash must be the same
	started    bool   // a batch has arrived
	first      uint64 // its number
}

// newReplay prepares a replay from the last batch on that no missing one precedes.
func (r *rankIndex) newReplay() replay {
	p := replay{rank: r, confirming: r.confirming, from: r.gapless().next}
	if p.verify = p.from > 0 && !r.gapless().fresh; p.verify {
		p.from--
	}
	return p
}

// batch applies one batch of the replay.
func (p *replay) batch(number uint64, payload []byte) error {
	r, a, first := p.rank, p.rank.gapless(), !p.started
	if first {
		p.started, p.first = true, number
		if number == 1 && p.from == 0 {
			r.countFrom1()
		}
	}
	switch {
	case first && p.verify && number == p.from:
		if xxhash.Sum64(payload) != a.sum {
			return errRestarted
		}
		r.trustAfter(number)
		return nil
	case number < a.next && p.confirming:
		return nil // it was buffered and has been applied
	case number < a.next:
		return errRestarted // later batches were requested
	case r.confirming:
		return r.applyReplayed(number, payload, p.first)
	case number > a.next:
		r.lostBefore(number, false) // the engine no longer keeps them
	}
	return r.applyLive(number, payload)
}

// end is called after the last batch.
func (p *replay) end() error {
	if p.verify && !p.started {
		return errRestarted // the engine does not have the last batch
	}
	p.rank.replayDone()
	return nil
}
