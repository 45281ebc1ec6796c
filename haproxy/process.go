package haproxy

import (
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"

	"pointsman/decider"
	"pointsman/spoa"
)

// A process of HAProxy is identified by its host and pid, which it reports itself: in its
// questions, as proc.pm_process, and in "show info" of its runtime API. A reload starts another
// process, which does not know the requests that the old one still serves.

// origin is the number of a process for decider.Request, never 0.
func origin(name []byte) uint64 { return max(xxhash.Sum64(name), 1) }

// Processes are the HAProxy processes that ask, with those that are visible from this host.
// It is safe for concurrent use.
type Processes struct {
	host  string // of the agent
	local atomic.Pointer[map[uint64]int]

	mu   sync.Mutex
	gone map[uint64]time.Time // when it was found to have ended

	exists func(pid int) bool // replaced in tests
}

// mostProcesses bounds the processes that are watched.
const mostProcesses = 256

// NewProcesses returns an empty Processes.
func NewProcesses() *Processes {
	host, _ := os.Hostname() // without it, only processes that name themselves are known
	p := &Processes{host: host, gone: map[uint64]time.Time{}, exists: exists}
	p.local.Store(&map[uint64]int{})
	return p
}

// exists reports whether there is a process of that pid.
func exists(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// of returns the process that sent m, 0 if that is unknown. If the configuration does not
// name it, its socket identifies it.
func (p *Processes) of(m *spoa.Message) uint64 {
	name, pid := m.Bytes("proc"), m.Peer()
	if len(name) == 0 {
		if pid == 0 || p.host == "" {
			return 0
		}
		var b [128]byte
		name = strconv.AppendInt(append(append(b[:0], p.host...), '/'), int64(pid), 10)
	}
	id := origin(name)
	if pid > 0 && namesPID(name, pid) {
		p.watch(id, pid)
	}
	return id
}

// namesPID reports whether the name of a process ends with that pid: then its pids
// are those that the agent sees.
func namesPID(name []byte, pid int) bool {
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			n, err := strconv.Atoi(string(name[i+1:]))
			return err == nil && n == pid
		}
	}
	return false
}

// watch notes that a process is visible from this host.
func (p *Processes) watch(id uint64, pid int) {
	if _, known := (*p.local.Load())[id]; known {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	next := map[uint64]int{id: pid}
	for other, n := range *p.local.Load() {
		if len(next) < mostProcesses {
			next[other] = n
		}
	}
	p.local.Store(&next)
}

// goneFor is how long after the end of a process its lines may still arrive.
const goneFor = 3 * time.Second

// Tick ends the reservations of processes that have ended: a worker that has served
// its last request after a reload, or one that was killed. The owner calls it about
// every second.
func (p *Processes) Tick(d *decider.Decider, now time.Time) {
	var ended []uint64
	p.mu.Lock()
	next := map[uint64]int{}
	for id, pid := range *p.local.Load() {
		since, missing := p.gone[id]
		switch {
		case p.exists(pid):
			delete(p.gone, id)
			next[id] = pid
		case !missing:
			p.gone[id] = now
			next[id] = pid
		case now.Sub(since) < goneFor:
			next[id] = pid
		default:
			delete(p.gone, id)
			ended = append(ended, id)
		}
	}
	if len(ended) > 0 {
		p.local.Store(&next)
	}
	for id := range p.gone {
		if _, watched := next[id]; !watched {
			delete(p.gone, id)
		}
	}
	p.mu.Unlock()
	for _, id := range ended {
		d.Gone(id)
	}
}
