package spoa

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"github.com/negasus/haproxy-spoe-go/action"
	"github.com/negasus/haproxy-spoe-go/agent"
	"github.com/negasus/haproxy-spoe-go/logger"
	"github.com/negasus/haproxy-spoe-go/request"
)

// BenchmarkNotify compares the guarded server with the bare library over a unix
// socket: one message at a time, and 20 in flight on one connection, which is
// what HAProxy allows itself.
func BenchmarkNotify(b *testing.B) {
	servers := map[string]func(net.Listener){
		"bare": func(l net.Listener) {
			agent.New(func(req *request.Request) {
				m, _ := req.Messages.GetByIndex(0)
				v, _ := m.KV.Get("body")
				body, _ := v.([]byte)
				req.Actions.SetVar(action.ScopeTransaction, "server", "r1")
				req.Actions.SetVar(action.ScopeTransaction, "n", int64(len(body)))
			}, logger.NewNop()).Serve(l)
		},
		"guarded": func(l net.Listener) {
			s := &Server{Log: slog.New(slog.DiscardHandler), Handler: func(m *Message, w *Reply) {
				w.SetString("server", "r1")
				w.SetInt("n", int64(len(m.Bytes("body"))))
			}}
			s.Serve(l)
		},
	}
	for _, size := range []int{1 << 10, 16 << 10, 128 << 10} {
		for _, window := range []int{1, 20} {
			for _, name := range []string{"bare", "guarded"} {
				b.Run(fmt.Sprintf("size=%dK/inflight=%d/server=%s", size>>10, window, name), func(b *testing.B) {
					l, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
					must(b, err)
					go servers[name](l)
					defer l.Close()
					c, err := net.Dial("unix", l.Addr().String())
					must(b, err)
					defer c.Close()
					k := &client{c, bufio.NewReader(c)}
					_, err = k.greet(1 << 20)
					must(b, err)
					exchange(b, k, notifyOf(12345, 1, messageOf("m",
						arg{"rid", "0190b6a4-7b1e-7d3c-9c1f-2f5e8a9b0c1d"}, arg{"path", "/v1/chat/completions"},
						arg{"size", int64(size)}, arg{"hdrs", body(1, 400)}, arg{"body", body(1, size)})), window)
				})
			}
		}
	}
}

// exchange sends b.N messages with at most window in flight. It allocates
// nothing itself.
func exchange(b *testing.B, c *client, msg []byte, window int) {
	room := make(chan struct{}, window)
	for range window {
		room <- struct{}{}
	}
	b.SetBytes(int64(len(msg)))
	b.ReportAllocs()
	b.ResetTimer()
	if window > 1 {
		go func() {
			for range b.N {
				<-room
				if _, err := c.Write(msg); err != nil {
					return
				}
			}
		}()
	}
	head := make([]byte, 4)
	for range b.N {
		if window == 1 {
			if _, err := c.Write(msg); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := io.ReadFull(c.r, head); err != nil {
			b.Fatal(err)
		}
		if _, err := c.r.Discard(int(binary.BigEndian.Uint32(head))); err != nil {
			b.Fatal(err)
		}
		if window > 1 {
			room <- struct{}{}
		}
	}
}
