package haproxy

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The runtime API goes away and comes back: the replicas keep their state
// between, and each change is logged once.
func TestRuntimeKeepsStateWhileTheProxyIsAway(t *testing.T) {
	d, p := newDecider()
	path := filepath.Join(t.TempDir(), "haproxy.sock")
	serve := func(status string) net.Listener {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				buf := make([]byte, 64)
				c.Read(buf)
				fmt.Fprintf(c, "# pxname,svname,scur,status,weight,addr,\nllama,r1,0,%s,1,127.0.0.1:1,\nllama,r2,0,UP,1,127.0.0.1:2,\n\n", status)
				c.Close()
			}
		}()
		return l
	}
	var log syncBuffer
	rt := &Runtime{Network: "unix", Address: path, Poll: time.Millisecond, Decider: d, Log: slog.New(slog.NewTextHandler(&log, nil))}
	if age := rt.Age(); age != -1 {
		t.Errorf("it has never answered, and the age is %v", age)
	}
	l := serve("DOWN")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { rt.Run(ctx); close(ended) }()
	state := func(want string) {
		t.Helper()
		eventually(t, "r1 "+want, func() bool { return p.Status().Replicas[0].State == want })
	}
	state("down")
	l.Close()
	eventually(t, "a look that fails", func() bool { return strings.Contains(log.String(), "does not answer") })
	state("down")
	if p := rt.Problem(); !strings.HasPrefix(p, "HAProxy's runtime API does not answer") || strings.Contains(p, "\n") {
		t.Errorf("the problem is %q", p)
	}
	silent := rt.Age()
	eventually(t, "an age that grows", func() bool { return silent >= 0 && rt.Age() > silent+0.01 })
	longest := rt.Age()
	l = serve("UP")
	state("up")
	if p := rt.Problem(); p != "" {
		t.Errorf("it answers, and the problem is %q", p)
	}
	eventually(t, "a new age", func() bool { return rt.Age() < longest })
	cancel()
	<-ended
	l.Close()
	if n := strings.Count(log.String(), "does not answer"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
}

func TestRuntimeGivesUpOnASilentProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer server.Close()
		go io.Copy(io.Discard, server)
		start := time.Now()
		_, err := query(t.Context(), client, every)
		if err == nil || time.Since(start) != queryTimeout {
			t.Errorf("gave up after %v with %v", time.Since(start), err)
		}
	})
}

// every wants all pools.
func every(string) bool { return true }

// TestStatIsBounded: backends that are no pool take no memory, and one with too many
// servers is refused.
func TestStatIsBounded(t *testing.T) {
	const header = "# pxname,svname,status,weight,addr,scur\n"
	var b strings.Builder
	b.WriteString(header)
	for i := range maxServers + 1 {
		fmt.Fprintf(&b, "llama,r%d,UP,1,10.0.0.1:80,0\n", i)
	}
	b.WriteString("\n")
	if got, err := parseStat(strings.NewReader(b.String()), func(string) bool { return false }); err != nil || len(got.states)+len(got.silent) != 0 {
		t.Errorf("%d backends that nobody wants: %v", len(got.states), err)
	}
	if _, err := parseStat(strings.NewReader(b.String()), every); err == nil {
		t.Errorf("%d servers are accepted", maxServers+1)
	}
}
