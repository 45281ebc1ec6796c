package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
)

const (
	// Interval is how often the state is written.
	Interval = 30 * time.Second
	// lastWrite is how long the agent waits at its end for the state to be written.
	lastWrite = 3 * time.Second
	// awaitReplicas is how long a pool's memory waits for its replicas.
	awaitReplicas = time.Minute
	// readyMost is how long missing replicas keep the agent from being ready.
	readyMost = 3 * time.Second
	// slowWrite is the time from which a write is logged as slow.
	slowWrite = 5 * time.Second
)

// Keeper keeps the memory of a decider's pools in a directory. It is safe for
// concurrent use.
type Keeper struct {
	dir     string
	decider *decider.Decider
	secret  []byte // to write to the file
	log     *slog.Logger
	loaded  *Loaded // nil = there was nothing to restore
	blocks  Blocks  // nil = nobody knows any
	started time.Time

	writing chan struct{} // holds a token while nobody writes
	locked  *os.File      // under writing
	failing bool          // under writing
	slow    atomic.Bool   // was logged

	mu       sync.Mutex
	pending  map[string][]byte // snapshots of pools without replicas yet
	restored decider.Restored
	done     int // pools restored

	writes, failures atomic.Uint64
	size             atomic.Int64
	at               atomic.Int64 // of the last write, in nanoseconds since the start; 0 = none
	took             atomic.Int64 // nanoseconds
}

// Open returns a Keeper of dir, with the file of an earlier life, if any. A file that
// cannot be used is logged and ignored.
func Open(dir string, log *slog.Logger) *Keeper {
	k := &Keeper{dir: dir, log: log, started: time.Now(), writing: make(chan struct{}, 1)}
	k.writing <- struct{}{}
	loaded, err := load(dir, k.started)
	switch {
	case err == nil:
		k.loaded, k.pending = loaded, loaded.pools
	case !errors.Is(err, fs.ErrNotExist):
		log.Warn("the state of the last run is ignored: the agent starts without its memory", "dir", dir, "reason", err)
	}
	return k
}

// Secret is the secret of the block keys in the file, nil without a file.
func (k *Keeper) Secret() []byte {
	if k.loaded == nil {
		return nil
	}
	return k.loaded.Secret
}

// Keep makes d the decider that is restored and written. secret is the secret of its block
// keys if the next life has to read it from the file, nil if it knows it otherwise. It is
// called once, before the other methods.
func (k *Keeper) Keep(d *decider.Decider, secret []byte) {
	k.decider, k.secret = d, secret
	if k.loaded == nil || !d.Budgets.On() {
		return
	}
	if err := d.Budgets.Restore(k.loaded.budgets, k.loaded.Age+time.Since(k.started)); err != nil {
		k.log.Warn("not all that clients have used is known", "error", err)
	}
}

// Blocks is the memory of the engines' caches, from their events.
type Blocks interface {
	Snapshot() []byte
	Restore([]byte)
}

// KeepBlocks restores b at once, and writes it from now on. It is called once, before
// Run.
func (k *Keeper) KeepBlocks(b Blocks) {
	k.blocks = b
	if k.loaded != nil {
		b.Restore(k.loaded.blocks)
		k.loaded.blocks = nil
	}
}

// Restore restores the memory of the pools that have replicas by now. It reports whether
// others still wait for theirs. The owner calls it until none does.
func (k *Keeper) Restore() (waits bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	since := time.Since(k.started)
	for name, text := range k.pending {
		p := k.decider.Pool(name)
		if p == nil || since > awaitReplicas {
			delete(k.pending, name)
			continue
		}
		if len(p.Members()) == 0 {
			continue
		}
		delete(k.pending, name)
		got, err := restore(p, text, k.loaded.Age+since)
		if err != nil {
			k.log.Warn("part of a pool's memory could not be read", "pool", name, "error", err)
		}
		k.restored.Replicas += got.Replicas
		k.restored.Blocks += got.Blocks
		k.restored.Sessions += got.Sessions
		k.restored.Reservations += got.Reservations
		k.done++
		k.log.Info("restored", "pool", name, "age", (k.loaded.Age + since).Round(time.Millisecond).String(),
			"replicas", got.Replicas, "blocks", got.Blocks, "sessions", got.Sessions, "requests", got.Reservations)
	}
	return len(k.pending) > 0
}

// IsReady reports whether the pools have their memory, or the wait for them is over.
func (k *Keeper) IsReady() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.pending) == 0 || time.Since(k.started) > readyMost
}

// restore restores the memory of a pool. The agent starts whether that works or not.
func restore(p *decider.Pool, text []byte, age time.Duration) (got decider.Restored, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return p.State().Restore(bytes.NewReader(text), "", age)
}

// Run restores pools as their replicas are found, and writes the state every Interval until
// ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	for wait := k.Restore(); wait && ctx.Err() == nil; wait = k.Restore() {
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	t := time.NewTicker(Interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			<-k.writing
			k.write()
			k.writing <- struct{}{}
		}
	}
}

// Close writes the state a last time. It waits for the disk a few seconds at most,
// and leaves the file alone if a write under way does not end, or if pools still
// wait for their memory. The Keeper is of no
// use afterwards.
func (k *Keeper) Close() {
	k.mu.Lock()
	waiting := len(k.pending)
	k.mu.Unlock()
	if waiting > 0 {
		return // the contents of the file are not in the pools yet
	}
	done := make(chan struct{})
	patience := time.After(lastWrite)
	select {
	case <-k.writing:
	case <-patience:
		k.log.Warn("the state was not written at the end: the disk is too slow", "dir", k.dir)
		return
	}
	go func() { k.write(); close(done) }()
	select {
	case <-done:
		if k.locked != nil {
			k.locked.Close()
		}
	case <-patience:
		k.log.Warn("the state was not written at the end: the disk is too slow", "dir", k.dir)
	}
}

// write writes the state. The caller holds the token of writing.
func (k *Keeper) write() {
	start := time.Now()
	defer time.AfterFunc(slowWrite, func() {
		if !k.slow.Swap(true) {
			k.log.Warn("the disk is slow to write the state; the agent goes on without", "dir", k.dir, "seconds", slowWrite.Seconds())
		}
	}).Stop()
	n, err := k.tryWrite(start)
	took := time.Since(start)
	if err != nil {
		k.failures.Add(1)
		if !k.failing {
			k.log.Warn("the state cannot be written; a restart would lose what was learned since the last write", "dir", k.dir, "error", err)
		}
		k.failing = true
		return
	}
	if k.failing {
		k.log.Info("the state is written again", "dir", k.dir)
	}
	k.failing = false
	k.writes.Add(1)
	k.size.Store(n)
	k.took.Store(int64(took))
	k.at.Store(max(int64(time.Since(k.started)), 1))
}

func (k *Keeper) tryWrite(now time.Time) (int64, error) {
	if k.locked == nil {
		f, err := lock(k.dir)
		if err != nil {
			return 0, err
		}
		k.locked = f
		removeLeftovers(k.dir)
	}
	return save(k.dir, k.decider, k.blocks, k.secret, now)
}

// Status is the state on disk, and what was restored from it at the start.
type Status struct {
	Dir      string  `json:"dir"`
	Age      float64 `json:"age_s"` // since it was written; -1 = not yet
	Bytes    int64   `json:"bytes"`
	Took     float64 `json:"write_s"`
	Writes   uint64  `json:"writes"`
	Failures uint64  `json:"write_failures"`
	// Restored is nil if there was nothing to restore.
	Restored *RestoredStatus `json:"restored,omitempty"`
}

// RestoredStatus describes what was restored at the start.
type RestoredStatus struct {
	Ago      float64 `json:"ago_s"` // since the start
	Age      float64 `json:"age_s"` // that it had then
	Pools    int     `json:"pools"`
	Waiting  int     `json:"waiting,omitempty"` // pools whose replicas are not found yet
	Blocks   int     `json:"blocks"`
	Sessions int     `json:"sessions"`
	Requests int     `json:"requests"`
}

// Status returns the state as it is now.
func (k *Keeper) Status() Status {
	s := Status{Dir: k.dir, Age: -1, Bytes: k.size.Load(), Took: time.Duration(k.took.Load()).Seconds(), Writes: k.writes.Load(), Failures: k.failures.Load()}
	if at := k.at.Load(); at > 0 {
		s.Age = (time.Since(k.started) - time.Duration(at)).Seconds()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.loaded != nil {
		s.Restored = &RestoredStatus{
			Ago: time.Since(k.started).Seconds(), Age: k.loaded.Age.Seconds(), Pools: k.done, Waiting: len(k.pending),
			Blocks: k.restored.Blocks, Sessions: k.restored.Sessions, Requests: k.restored.Reservations,
		}
	}
	return s
}

// Export adds the metrics of the state to set.
func (k *Keeper) Export(set *metrics.Set) {
	restored := func(f func(*RestoredStatus) int) func() float64 {
		return func() float64 {
			if s := k.Status(); s.Restored != nil {
				return float64(f(s.Restored))
			}
			return 0
		}
	}
	set.NewGauge("pointsman_state_age_seconds", func() float64 { return k.Status().Age })
	set.NewGauge("pointsman_state_bytes", func() float64 { return float64(k.size.Load()) })
	set.NewGauge("pointsman_state_write_seconds", func() float64 { return time.Duration(k.took.Load()).Seconds() })
	set.NewGauge("pointsman_state_writes_total", func() float64 { return float64(k.writes.Load()) })
	set.NewGauge("pointsman_state_write_failures_total", func() float64 { return float64(k.failures.Load()) })
	set.NewGauge("pointsman_state_restored_blocks", restored(func(s *RestoredStatus) int { return s.Blocks }))
	set.NewGauge("pointsman_state_restored_sessions", restored(func(s *RestoredStatus) int { return s.Sessions }))
	set.NewGauge("pointsman_state_restored_requests", restored(func(s *RestoredStatus) int { return s.Requests }))
}
