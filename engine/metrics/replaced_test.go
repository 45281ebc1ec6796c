package metrics

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What was learned once of an engine is asked again of the one at its address after a
// restart, after failures, and when it is of another kind.
func TestAnotherEngineIsAskedAgain(t *testing.T) {
	refused := errors.New("connection refused")
	long := `{"data":[{"id":"m","max_model_len":9000}]}`
	short := `{"data":[{"id":"m","max_model_len":3000}]}`
	page := func(kind string, firstTokens int) string {
		switch kind {
		case "vllm":
			return fmt.Sprintf("vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:time_to_first_token_seconds_count %d\n", firstTokens)
		case "sglang":
			return fmt.Sprintf("sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\nsglang:time_to_first_token_seconds_count %d\n", firstTokens)
		}
		return "llamacpp:requests_processing 0\nllamacpp:requests_deferred 0\n"
	}
	for _, c := range []struct {
		name     string
		kind     string // of the engine afterwards
		counter  int    // its first tokens, where the first engine had 50
		down     bool   // between the two
		models   string // that it lists
		refuses  error  // to list them
		context  int    // that is known then; 0 = none
		restarts uint64
		replaced int // calls of MaybeReplaced
	}{
		{"the same", "vllm", 51, false, short, nil, 9000, 0, 0}, // the list is not due yet
		{"restarted", "vllm", 1, false, short, nil, 3000, 1, 1},
		{"restarted, with a key", "vllm", 1, false, "", statusError(401), 0, 1, 1},
		{"restarted, without an answer", "vllm", 1, false, "", refused, 9000, 1, 1},
		{"was down", "vllm", 51, true, short, nil, 3000, 0, 1},
		{"was down, the same", "vllm", 51, true, long, nil, 9000, 0, 1},
		{"another kind that counts more", "sglang", 70, false, short, nil, 3000, 1, 1},
		{"another kind after it was down", "sglang", 70, true, short, nil, 3000, 1, 1},
		{"a kind that lists no lengths", "llamacpp", 0, false, long, nil, 0, 1, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := &fakeEngine{t: t, takes: time.Millisecond}
			r := newRig(Options{}, e)
			start := time.Now()
			first := func() bool {
				if time.Since(start) > 3*time.Second {
					return false
				}
				if time.Since(start) > time.Second && (r.pool.Bounds().Context != 9000 || r.replaced != 0) {
					t.Errorf("%s: context of %d tokens, called another %d times at first", c.name, r.pool.Bounds().Context, r.replaced)
				}
				return true
			}
			e.page = func() (string, error) {
				switch {
				case first():
					return page("vllm", 50), nil
				case c.down && time.Since(start) < 6*time.Second:
					return "", refused
				}
				return page(c.kind, c.counter), nil
			}
			e.models = func() (string, error) {
				if first() {
					return long, nil
				}
				return c.models, c.refuses
			}
			r.run(12 * time.Second)
			s := r.scrapers[0].Status()
			context := 0
			if b := r.pool.Bounds(); b.Known {
				context = b.Context
			}
			if context != c.context || s.Restarts != c.restarts || r.replaced != c.replaced || r.restart != (c.restarts > 0) || s.Engine != c.kind {
				t.Errorf("%s: context of %d tokens, %d restarts, called another %d times, is %s", c.name, context, s.Restarts, r.replaced, s.Engine)
			}
			if said := strings.Contains(r.log.String(), "another engine serves here now"); said != (c.kind != "vllm") {
				t.Errorf("%s: the log says\n%s", c.name, r.log.String())
			}
			if slices.Contains(e.paths, "/health") {
				t.Error("/health is there in this test")
			}
		})
	}
}
