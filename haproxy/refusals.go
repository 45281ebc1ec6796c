package haproxy

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// retryRefused is the pause before a change that HAProxy refuses is tried again.
const retryRefused = 30 * time.Second

// refusals remember the changes of servers that HAProxy has not made. The words of its
// answers differ between releases: a change that has to be requested again was refused. The
// zero value is ready; it is safe for concurrent use.
type refusals struct {
	mu   sync.Mutex
	open map[string]*refusal // by BACKEND/NAME
}

type refusal struct {
	asked  int
	answer string
	until  time.Time
}

// retain forgets the servers of a pool that need no change any more.
func (f *refusals) retain(pool string, list []command) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.open, func(server string, _ *refusal) bool {
		return strings.HasPrefix(server, pool+"/") && !slices.ContainsFunc(list, func(c command) bool { return c.server == server })
	})
}

// pauses reports whether the change of a server was refused and is not due again.
func (f *refusals) pauses(server string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.open[server]
	return r != nil && now.Before(r.until)
}

// answered notes the answer to a change of a server. It reports true when HAProxy has
// refused the change with a new message. HAProxy finishes the requests of a server before
// it deletes it: that is no refusal.
func (f *refusals) answered(server, answer string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.Contains(answer, "still has connections") {
		return false
	}
	r := f.open[server]
	if r == nil {
		r = &refusal{}
		if f.open == nil {
			f.open = map[string]*refusal{}
		}
		f.open[server] = r
	}
	if r.asked++; r.asked < 2 {
		return false
	}
	r.until = now.Add(retryRefused)
	if r.answer == answer && r.asked > 2 {
		return false
	}
	r.answer = answer
	return true
}

// Refusals are the changes of servers that HAProxy refuses, with its messages.
func (r *Runtime) Refusals() (list []string) {
	f := &r.refused
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, server := range slices.Sorted(maps.Keys(f.open)) {
		if e := f.open[server]; e.asked >= 2 {
			list = append(list, server+": "+e.answer)
		}
	}
	return list
}
