package page

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"pointsman/cluster"
	"pointsman/cluster/wire"
	"pointsman/decider"
)

// hub passes messages among the agents of this process.
type hub struct {
	mu       sync.Mutex
	handlers map[string][]chan []byte
}

// seat is one agent's place at the hub.
type seat struct {
	*hub
	done <-chan struct{}
}

func (s *seat) Publish(subject string, message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.handlers[subject] {
		select {
		case c <- append([]byte(nil), message...):
		default: // it has ended
		}
	}
	return nil
}

func (s *seat) Subscribe(subject string, handle func([]byte)) error {
	c := make(chan []byte, 1000)
	s.mu.Lock()
	s.handlers[subject] = append(s.handlers[subject], c)
	s.mu.Unlock()
	go func() {
		for {
			select {
			case m := <-c:
				handle(m)
			case <-s.done:
				return
			}
		}
	}()
	return nil
}

func (*seat) State() string { return "connected to 2 of 2 peers" }
func (*seat) Close()        {}

// joins makes the site's agent one of three, of which the last falls silent.
func (s *site) joins() {
	s.t.Helper()
	h := &hub{handlers: map[string][]chan []byte{}}
	secret := wire.NewSecret("prod", []byte("a secret of thirty-two characters"))
	epoch := time.Now()
	clock := func() time.Duration { return time.Since(epoch) }
	for _, name := range []string{"gw-1", "gw-2", "gw-3"} {
		d := s.decider
		if name != "gw-1" {
			d = decider.New(clock, s.rng.Uint64)
		}
		node := cluster.New(cluster.Options{Cluster: "prod", Agent: name, Secret: secret, Decider: d, Log: slog.New(slog.DiscardHandler), Clock: clock})
		ctx, cancel := context.WithCancel(context.Background())
		if err := node.Connect(&seat{h, ctx.Done()}); err != nil {
			s.t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			node.Run(ctx)
		}()
		s.t.Cleanup(func() { cancel(); <-ended })
		switch name {
		case "gw-1":
			s.server.Cluster = node
		case "gw-3":
			time.AfterFunc(2*time.Second, cancel)
		}
	}
}

// The other agents are on the page, with their state, and one that has fallen silent is
// among the problems.
func TestPeers(t *testing.T) {
	b := open(t)
	s := newSite(t, 8)
	s.joins()
	s.run(5)
	for _, view := range []struct {
		name, scheme string
		width        int
	}{{"peers", "light", 1400}, {"peers-dark", "dark", 1400}, {"peers-narrow", "light", 390}} {
		b.view(view.width, 700, view.scheme)
		b.visit(s.address + "/")
		b.until(isLive)
		b.until("document.querySelectorAll('#peers tbody tr').length === 2")
		b.until("document.querySelector('#peers').textContent.includes('silent')")
		if text := b.eval("document.body.innerText").(string); !strings.Contains(text, "Agent gw-3 of the cluster has been silent for") || !strings.Contains(text, "this agent is gw-1: connected to 2 of 2 peers") {
			t.Errorf("the page says\n%s", text)
		}
		if over := b.eval("document.documentElement.scrollWidth - innerWidth").(float64); over > 0 {
			t.Errorf("%d pixels wide: the page is wider by %v", view.width, over)
		}
		b.eval("document.querySelector('#peers').scrollIntoView()")
		b.shot(view.name)
		b.accessible(view.name)
	}
	b.sound()
}
