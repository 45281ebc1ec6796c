package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pointsman/test/rig"
)

// conversations are long prompts that grow with each turn, so that it matters which
// replica has the turns before.
type conversations struct {
	t      *testing.T
	hosts  []string // of proxies, which get the turns by turns
	client *http.Client
	bodies [][]byte // messages so far, as JSON without the closing bracket

	mu     sync.Mutex
	prompt int // tokens, of all turns
	cached int // of these
}

func newConversations(t *testing.T, n int, hosts ...string) *conversations {
	c := &conversations{t: t, hosts: hosts, client: rig.NewClient(8, false, false)}
	for i := range n {
		c.bodies = append(c.bodies, message(nil, i, 0, 12<<10))
	}
	return c
}

// message appends a message of about that size to a conversation.
func message(before []byte, conversation, turn, size int) []byte {
	b := append([]byte(nil), before...)
	if len(b) > 0 {
		b = append(b, ',')
	}
	text := strings.Repeat(fmt.Sprintf("conversation %d turn %d. ", conversation, turn), size/24)
	return append(b, fmt.Sprintf(`{"role":"user","content":%q}`, text)...)
}

// play sends that many turns of each conversation, a few at a time, and returns the share of
// the prompts that the engines had cached.
func (c *conversations) play(turns int) float64 {
	c.prompt, c.cached = 0, 0
	for turn := range turns {
		next := make(chan int)
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				for i := range next {
					c.turn(i, turn)
				}
			})
		}
		for i := range c.bodies {
			next <- i * 7 % len(c.bodies) // the order is not that of the replicas
		}
		close(next)
		workers.Wait()
	}
	return float64(c.cached) / float64(max(c.prompt, 1))
}

func (c *conversations) turn(i, turn int) {
	c.bodies[i] = message(c.bodies[i], i, turn, 1<<10)
	call := rig.Call{Body: fmt.Appendf(nil, `{"model":%q,"max_tokens":4,"messages":[%s]}`, rig.Model, c.bodies[i])}
	a := call.Do(c.client, c.hosts[(i+turn)%len(c.hosts)])
	if err := call.Check(a); err != nil {
		c.t.Errorf("a turn: %v", err)
		return
	}
	var answer struct {
		Usage struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal(a.Body, &answer); err != nil {
		c.t.Errorf("a turn: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prompt += answer.Usage.Prompt
	c.cached += answer.Usage.Details.Cached
}

// TestRestart restarts the agent under load. No request fails, it knows at once
// which replica has which conversation, and counts the requests that run. A crash
// leaves it with an older state, which the engines and proxies set right; a damaged
// state is as good as none.
func TestRestart(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		dir := t.TempDir()
		s, engines := rig.Replicas(t, r, 3, "least_work", fmt.Sprintf("agent: {state_dir: %q}", dir))
		s.Patient()
		s.Start()
		talk := newConversations(t, 24, s.Front)
		talk.play(2)
		load := rig.StartTraffic(t, s.Front, 3)

		const held = 6
		var streams sync.WaitGroup
		client := rig.NewClient(held, false, false)
		for range held {
			streams.Go(func() {
				c := rig.Held()
				if err := c.Check(c.Do(client, s.Front)); err != nil {
					t.Errorf("a stream over the restart: %v", err)
				}
			})
		}
		running := func() (n int) {
			for _, e := range engines {
				n += e.Holds()
			}
			return n
		}
		rig.Eventually(t, 5*time.Second, "the long streams are in flight", func() (bool, string) { return running() == held, fmt.Sprint(running()) })
		before := talk.play(3)

		restarts, turns := 1, 3
		if rig.Soak {
			restarts, turns = 5, 12
		}
		for range restarts {
			s.Agent.Signal(syscall.SIGTERM)
			<-s.Agent.Ended
			load.Await(20)
			s.Agent.Start()
			s.Proxy.AwaitAgent()
			s.Decides(5)
			after := talk.play(turns)
			t.Logf("hit rate %.3f before the restart, %.3f after it", before, after)
			if after < .97*before || before < .5 {
				t.Errorf("hit rate %.3f before the restart, %.3f after it, want at least 0.97 of that", before, after)
			}
		}
		load.Stop()
		counted := func() (bool, string) {
			p := s.Agent.Pool(rig.Pool)
			return p.Reservations == held, fmt.Sprintf("%+v", p)
		}
		// A line of HAProxy's that was on its way is lost: then the engines set it right.
		rig.Eventually(t, 12*time.Second, "the streams that run are counted", counted)

		engines[0].Release()
		engines[1].Release()
		engines[2].Release()
		streams.Wait()
		s.Agent.Settled(rig.Pool)

		// The file is of the time when the streams ran.
		s.Agent.Kill()
		s.Agent.Start()
		s.Proxy.AwaitAgent()
		if n := s.Agent.Metrics()["pointsman_state_restored_requests"]; n < held {
			t.Errorf("after the crash it restored %v requests, want the %d streams at least", n, held)
		}
		rig.Eventually(t, 15*time.Second, "the streams that have ended are not counted", func() (bool, string) {
			p := s.Agent.Pool(rig.Pool)
			return p.Reservations == 0, fmt.Sprintf("%+v", p)
		})

		s.Agent.Kill()
		file := filepath.Join(dir, "state")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text[len(text)/2] ^= 1
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		ignored := strings.Count(s.Agent.Log.String(), "is ignored")
		s.Agent.Start()
		s.Proxy.AwaitAgent()
		s.Serve(client, 4)
		if n := strings.Count(s.Agent.Log.String(), "is ignored") - ignored; n != 1 {
			t.Errorf("%d log lines of a damaged state, want 1", n)
		}
		if status := command(t, "status", "--once", "--admin", s.Agent.Admin); !bytes.Contains([]byte(status), []byte("state in "+dir+": ")) {
			t.Errorf("status shows no state:\n%s", status)
		}
	})
}
