package haproxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/decider"
	"pointsman/link"
)

// A feed connection that is idle for long, or stuck in a line, is closed.
func TestFeedDeadlines(t *testing.T) {
	for sent, after := range map[string]time.Duration{"": feedIdle, "3 abc": feedIdle, "10 PM1": lineTime} {
		synctest.Test(t, func(t *testing.T) {
			proxy, c := net.Pipe()
			defer proxy.Close()
			go io.WriteString(proxy, sent)
			began := time.Now()
			err := readLines(c, func([]byte) {}, func(d time.Duration) { c.SetReadDeadline(time.Now().Add(d)) })
			if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != after {
				t.Errorf("after %q: %v in %v", sent, err, time.Since(began))
			}
		})
	}
}

// Connections that only wait do not keep HAProxy out.
func TestIdleFeedConnectionsGiveWay(t *testing.T) {
	d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
	var log bytes.Buffer
	f := NewFeed(d, &link.Link{}, metrics.NewSet(), slog.New(slog.NewTextHandler(&log, nil)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- f.Serve(l) }()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	say := func(c net.Conn, n int) {
		t.Helper()
		fmt.Fprint(c, "3 abc")
		eventually(t, "the line is read", func() bool { return f.Ignored.Get() == uint64(n) })
	}
	haproxy := dial()
	say(haproxy, 1)
	for range maxFeedConns {
		dial()
	}
	eventually(t, "all are accepted", func() bool { return f.accepted.Stats().Accepted == maxFeedConns+1 })
	say(dial(), 2) // in the place of an older one
	f.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "silent for longest"); n < 1 || n > 3 {
		t.Errorf("%d log lines:\n%s", n, log.String())
	}
}
