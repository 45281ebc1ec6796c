package spoa

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pointsman/test/proxies"
)

const haproxyConfig = `
global
    maxconn 1000
    nbthread %[4]d
    tune.bufsize 262144
defaults
    mode http
    timeout connect 2s
    timeout client 10s
    timeout server 10s
frontend f
    bind 127.0.0.1:%[2]d
    option http-buffer-request
    filter spoe engine e config %[3]s
    http-request return status 200 hdr x-got %%[var(txn.pm.got)] hdr x-neg %%[var(txn.pm.neg)] hdr x-error %%[var(txn.pm.error)]
backend agent
    mode tcp
    option spop-check
    retries 0
    timeout connect 200ms
    timeout server 10s
    server a unix@%[1]s check inter 100ms
`

const haproxySpoe = `
[e]
spoe-agent a
    messages m
    option var-prefix pm
    option set-on-error error
    timeout processing 5s
    timeout hello 2s
    timeout idle 1h
    use-backend agent
spoe-message m
    args path=path size=req.body_size none=req.hdr(absent) src=src head=req.hdrs body=req.body
    event on-frontend-http-request
`

// startHAProxy runs an HAProxy whose SPOE agent is r, and returns its URL once
// it answers with a decision.
func startHAProxy(t *testing.T, haproxy proxies.Binary, threads int, socket string) string {
	dir := t.TempDir()
	port := proxies.FreePort(t)
	spoe, config := filepath.Join(dir, "spoe"), filepath.Join(dir, "cfg")
	must(t, os.WriteFile(spoe, []byte(haproxySpoe), 0o644))
	must(t, os.WriteFile(config, fmt.Appendf(nil, haproxyConfig, socket, port, spoe, threads), 0o644))
	var out syncBuffer
	cmd := haproxy.Command("-db", "-f", config)
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("haproxy:\n%s", out.String())
		}
	})
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	eventually(t, "haproxy gets variables from the agent", func() bool {
		h, err := post(url+"/ready", []byte("x"))
		return err == nil && h.Get("x-got") != ""
	})
	return url
}

var httpClient = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}

func post(url string, b []byte) (http.Header, error) {
	res, err := httpClient.Post(url, "text/plain", bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.Header, err
}

// TestHAProxy sends bodies of many sizes through real HAProxies, and stops the
// agent under load that does not stop: what it answered is right, and what
// came later went on without it: at once, but for 2.x, which waits for a dead
// agent until its check fails.
func TestHAProxy(t *testing.T) {
	for _, haproxy := range proxies.HAProxies(t) {
		t.Run(haproxy.Version, func(t *testing.T) {
			defer httpClient.CloseIdleConnections()
			var out syncBuffer
			r := start(t, "unix", &Server{Log: slog.New(slog.NewTextHandler(&out, nil)), Handler: func(m *Message, w *Reply) {
				size, ok := m.Int("size")
				if b := m.Bytes("body"); !ok || int(size) != len(b) || m.Bytes("none") != nil || m.String("path") == "" || len(m.Bytes("head")) == 0 {
					t.Errorf("size %d %v, body %d, path %q", size, ok, len(b), m.String("path"))
				}
				w.SetInt("got", sum(m.Bytes("body")))
				w.SetInt("neg", -1)
			}})
			url := startHAProxy(t, haproxy, 2, r.addr.String())
			everySize(t, url)
			if s := r.Stats(); s.Malformed != 0 || s.Panics != 0 || s.Dropped != 0 {
				t.Errorf("%+v", s)
			}
			stopUnderLoad(t, r, url, strings.HasPrefix(haproxy.Version, "2."))
			if out := out.String(); strings.Contains(out, "level=") {
				t.Errorf("log:\n%s", out)
			}
		})
	}
}

func everySize(t *testing.T, url string) {
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Go(func() {
			for i := range 40 {
				b := body(i*k, []int{1, 100, 5_000, 20_000, 130_000, 240_000}[i%6])
				h, err := post(url+"/x", b)
				if err != nil || h.Get("x-got") != strconv.FormatInt(sum(b), 10) || h.Get("x-neg") != "-1" {
					t.Errorf("%d bytes: %v %v", len(b), h, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// contextTimeout is what HAProxy puts into the error variable when it waited
// all of `timeout processing` for an ACK.
const contextTimeout = "1"

func stopUnderLoad(t *testing.T, r *rig, url string, mayWait bool) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			b := body(1, 5_000)
			want := strconv.FormatInt(sum(b), 10)
			for {
				select {
				case <-stop:
					return
				default:
				}
				h, err := post(url+"/y", b)
				if err != nil {
					t.Error(err)
					return
				}
				if got := h.Get("x-got"); got != want && got != "" || h.Get("x-error") == contextTimeout && !mayWait {
					t.Errorf("got %q, error %q", got, h.Get("x-error"))
				}
			}
		})
	}
	before := r.Stats().Messages
	eventually(t, "load", func() bool { return r.Stats().Messages > before+50 })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	close(stop)
	wg.Wait()
}

// busiest returns the connection with most messages in flight, and their number.
func busiest(s *Server) (c *conn, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.conns {
		if m := len(k.slots); m > n {
			c, n = k, m
		}
	}
	return c, n
}

// TestHAProxyLosesOneConnection: when one of several connections ends with
// messages in flight, HAProxy gives these up at once and does not wait for all
// of its `timeout processing`; the others are answered.
func TestHAProxyLosesOneConnection(t *testing.T) {
	for _, haproxy := range proxies.HAProxies(t) {
		t.Run(haproxy.Version, func(t *testing.T) {
			defer httpClient.CloseIdleConnections()
			gate := make(chan struct{})
			var held atomic.Int64
			r := start(t, "unix", &Server{Handler: func(m *Message, w *Reply) {
				if m.String("path") == "/hold" {
					held.Add(1)
					m.Block()
					<-gate
				}
				w.SetString("got", "x")
			}})
			url := startHAProxy(t, haproxy, 1, r.addr.String())

			const n = 30 // HAProxy sends at most 20 over one connection
			results := make(chan http.Header, n)
			for range n {
				go func() {
					h, err := post(url+"/hold", []byte("x"))
					if err != nil {
						t.Error(err)
					}
					results <- h
				}()
			}
			eventually(t, "all held", func() bool { return held.Load() == n })
			c, lost := busiest(r.Server)
			c.sock.Close()
			for range lost {
				if h := <-results; h.Get("x-got") != "" || h.Get("x-error") == contextTimeout {
					t.Errorf("a message on the lost connection got %v", h)
				}
			}
			close(gate)
			for range n - lost {
				if h := <-results; h.Get("x-got") != "x" {
					t.Errorf("a message on another connection got %v", h)
				}
			}
			if lost == n {
				t.Error("HAProxy used one connection only")
			}
		})
	}
}
