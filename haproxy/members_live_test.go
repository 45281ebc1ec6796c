package haproxy

import (
	"bufio"
	"bytes"
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/policy"
)

// api is HAProxy's runtime API with the servers of one backend.
type api struct {
	mu       sync.Mutex
	servers  map[string]string // name → address
	commands []string
	refuses  string // the answer to each change, none of which it makes
	mute     bool   // it closes the connection instead of answering
}

func (a *api) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		line, _ := bufio.NewReader(c).ReadString('\n')
		c.Write([]byte(a.answer(strings.TrimSpace(line))))
		c.Close()
	}
}

func (a *api) answer(line string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := strings.Fields(line)
	if a.mute || len(w) == 0 { // a client may connect and send nothing
		return ""
	}
	if w[0] == "show" {
		text := "# pxname,svname,scur,status,weight,addr,\nllama,BACKEND,0,UP,1,,\n"
		for name, address := range a.servers {
			text += "llama," + name + ",0,UP,1," + address + ",\n"
		}
		return text + "\n"
	}
	a.commands = append(a.commands, line)
	if a.refuses != "" {
		return a.refuses
	}
	name := strings.TrimPrefix(w[2], "llama/")
	switch w[0] + " " + w[1] {
	case "add server":
		a.servers[name] = w[3]
	case "del server":
		delete(a.servers, name)
	}
	return "done\n"
}

func (a *api) names() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := map[string]bool{}
	for n := range a.servers {
		names[n] = true
	}
	return names
}

// The servers of a backend follow what is discovered: Tell at once, Run at the
// next poll. Servers of the user's are left alone, and so is a pool that is not
// discovered.
func TestMembersFollowDiscovery(t *testing.T) {
	d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: policy.Random{}, Discover: true}}})
	hap := &api{servers: map[string]string{"10.0.0.1:8000": "10.0.0.1:8000", "theirs": "10.0.0.9:1"}}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { hap.serve(l) })
	defer func() { l.Close(); served.Wait() }()

	var mu sync.Mutex
	members, discovered := []Member{{"10.0.0.2:8000", "10.0.0.2:8000", 0}, {"10.0.0.3:8000", "10.0.0.3:8000", 5}}, true
	set := func(m []Member, is bool) {
		mu.Lock()
		defer mu.Unlock()
		members, discovered = m, is
	}
	r := &Runtime{Network: "unix", Address: l.Addr().String(), Poll: time.Millisecond, Decider: d, Log: quiet(),
		Members: func(pool string) ([]Member, bool) {
			mu.Lock()
			defer mu.Unlock()
			return members, discovered && pool == "llama"
		}}
	r.Reconcile(t.Context(), "llama")
	if n := hap.names(); len(n) != 3 || !n["10.0.0.2:8000"] || !n["10.0.0.3:8000"] || !n["theirs"] {
		t.Errorf("servers %v", n)
	}
	r.Reconcile(t.Context(), "other") // HAProxy has no such backend
	before := len(hap.commands)
	set(nil, false)
	r.Reconcile(t.Context(), "llama")
	if len(hap.commands) != before {
		t.Errorf("commands for a pool that is not discovered: %q", hap.commands[before:])
	}

	set([]Member{{"10.0.0.3:8000", "10.0.0.3:8000", 5}}, true)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	eventually(t, "a server that is gone is deleted", func() bool { return !hap.names()["10.0.0.2:8000"] })
	eventually(t, "the pool has the servers", func() bool {
		has := map[string]bool{}
		for _, s := range d.Pools()[0].Status().Replicas {
			has[s.Name] = true
		}
		return len(has) == 2 && has["theirs"] && has["10.0.0.3:8000"]
	})
	cancel()
	<-ended

	hap.mu.Lock()
	hap.mute = true
	hap.mu.Unlock()
	set(nil, true)
	r.Reconcile(t.Context(), "llama")
	if len(hap.names()) != 2 {
		t.Errorf("servers changed although HAProxy did not answer: %v", hap.names())
	}
}

// A poll changes a bounded number of servers; the next one goes on.
func TestMembersInBatches(t *testing.T) {
	d, _ := newDecider()
	hap := &api{servers: map[string]string{}}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { hap.serve(l) })
	defer func() { l.Close(); served.Wait() }()
	var members []Member
	for i := range 40 {
		a := net.JoinHostPort("10.0.0.1", string(rune('1'+i%9))+string(rune('0'+i/9)))
		members = append(members, Member{a, a, 1})
	}
	r := &Runtime{Network: "unix", Address: l.Addr().String(), Decider: d, Log: quiet(), Members: func(string) ([]Member, bool) { return members, true }}
	r.Reconcile(t.Context(), "llama")
	if n := len(hap.commands); n != maxCommands {
		t.Errorf("%d commands at once, want %d", n, maxCommands)
	}
	r.Reconcile(t.Context(), "llama")
	if n := len(hap.names()); n != len(members) {
		t.Errorf("%d servers, want %d", n, len(members))
	}
}

// A change that HAProxy refuses is logged once, with its own words, which the status
// shows too, and is not asked for at each poll.
func TestRefusalsAreReportedOnce(t *testing.T) {
	d, _ := newDecider()
	hap := &api{servers: map[string]string{"10.0.0.7:1": "10.0.0.7:1"}, refuses: "Permission denied\n"}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { hap.serve(l) })
	defer func() { l.Close(); served.Wait() }()
	var log bytes.Buffer
	r := &Runtime{Network: "unix", Address: l.Addr().String(), Decider: d, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Members: func(string) ([]Member, bool) { return []Member{{"10.0.0.8:1", "10.0.0.8:1", 1}}, true }}
	for range 20 {
		r.Reconcile(t.Context(), "llama")
	}
	if n := len(hap.commands); n > 10 {
		t.Errorf("%d commands", n)
	}
	if n := strings.Count(log.String(), `answer="Permission denied"`); n != 2 {
		t.Errorf("%d log lines for two servers:\n%s", n, log.String())
	}
	if got := r.Refusals(); len(got) != 2 || got[0] != "llama/10.0.0.7:1: Permission denied" {
		t.Errorf("refusals %q", got)
	}
	hap.mu.Lock()
	hap.servers, hap.refuses = map[string]string{"10.0.0.8:1": "10.0.0.8:1"}, ""
	hap.mu.Unlock()
	r.Reconcile(t.Context(), "llama")
	if got := r.Refusals(); len(got) != 0 {
		t.Errorf("refusals %q of what has been done", got)
	}
}
