package spoa

import (
	"bufio"
	"encoding/binary"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// brokenFrames end a connection, before HELLO and after, by what is wrong.
func brokenFrames() map[string][]byte {
	length := func(n uint32, rest ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, n), rest...)
	}
	good := notifyOf(1, 1, messageOf("m", arg{"body", body(1, 300)}))
	cut := append([]byte{}, good[:len(good)-10]...)
	binary.BigEndian.PutUint32(cut, uint32(len(cut)-4))
	return map[string][]byte{
		"length 0":                length(0, 0, 0, 0, 0),
		"length 6":                length(6, 3, 0, 0, 0, 1, 0),
		"length 4 GiB":            length(0xffffffff, 3, 0, 0, 0, 1),
		"length above limit":      length(16381, good[4:]...),
		"http":                    []byte("GET / HTTP/1.1\r\n\r\n"),
		"unset type":              frameOf(0, 1, 1, 1, nil),
		"not fin":                 frameOf(3, 0, 1, 1, messageOf("m")),
		"abort":                   frameOf(3, 3, 1, 1, messageOf("m")),
		"agent's own type":        frameOf(103, 1, 1, 1, nil),
		"no such type":            frameOf(77, 1, 1, 1, nil),
		"endless stream id":       length(9, 3, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff),
		"name beyond the end":     frameOf(3, 1, 1, 1, []byte{200, 'a'}),
		"huge name":               frameOf(3, 1, 1, 1, putUvarint(nil, 1<<63+5)),
		"no argument count":       frameOf(3, 1, 1, 1, []byte{1, 'a'}),
		"missing arguments":       frameOf(3, 1, 1, 1, []byte{1, 'a', 3}),
		"cut value":               cut,
		"short ipv4":              notifyOf(1, 1, messageOf("m", arg{"a", raw{6, 1, 2}})),
		"short ipv6":              notifyOf(1, 1, messageOf("m", arg{"a", raw{7, 1, 2}})),
		"unknown value type":      notifyOf(1, 1, messageOf("m", arg{"a", raw{0x0c, 1, 2}})),
		"integer without end":     notifyOf(1, 1, messageOf("m", arg{"a", raw{4, 0xff, 0xff}})),
		"value of 2^64-1 bytes":   notifyOf(1, 1, messageOf("m", arg{"a", raw(putUvarint([]byte{9}, 1<<64-1))})),
		"a flood of messages":     frameOf(3, 1, 1, 1, make([]byte, 16000)),
		"a second hello":          append(helloOf(16380), helloOf(16380)...),
		"disconnect, wrong types": frameOf(2, 1, 0, 0, putPairs(arg{"engine-id", int64(1)})),
		"disconnect, cut":         frameOf(2, 1, 0, 0, []byte{10, 'a'}),
	}
}

func TestBrokenFrames(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		for what, b := range brokenFrames() {
			t.Run(network+"/"+what, func(t *testing.T) {
				var out syncBuffer
				r := start(t, network, &Server{Handler: echo, Log: slog.New(slog.NewTextHandler(&out, nil))})
				c := r.connect(t, 16380)
				_, err := c.Write(b)
				must(t, err)
				// It may say why, and is gone.
				if a, err := c.read(); err == nil {
					if a.kind != 102 || a.vars["status-code"] == int64(0) {
						t.Errorf("answer %+v", a)
					}
					if what == "not fin" && a.vars["status-code"] != int64(10) {
						t.Errorf("a fragment is refused with %v", a.vars)
					}
					c.read()
				}
				eventually(t, "connection closed", func() bool { return r.Stats().Open == 0 })
				if s := r.Stats(); s.Malformed != 1 || s.Panics != 0 || s.Messages != 0 {
					t.Errorf("%+v", s)
				}
				if n := strings.Count(out.String(), "\n"); n != 1 {
					t.Errorf("%d log lines:\n%s", n, out.String())
				}
			})
		}
	}
}

func TestBrokenHello(t *testing.T) {
	r := start(t, "unix", &Server{Handler: echo})
	broken := map[string][]byte{
		"notify first":       notifyOf(1, 1, messageOf("m")),
		"disconnect first":   disconnectFrame,
		"large hello":        helloOf(16380, arg{"x", strings.Repeat("x", maxHello)}),
		"no max-frame-size":  frameOf(1, 1, 0, 0, putPairs(arg{"supported-versions", "2.0"})),
		"small frames":       helloOf(100),
		"wrong size type":    frameOf(1, 1, 0, 0, putPairs(arg{"max-frame-size", int64(16380)})),
		"wrong health type":  helloOf(16380, arg{"healthcheck", "yes"}),
		"wrong engine type":  frameOf(1, 1, 0, 0, putPairs(arg{"max-frame-size", uint32(16380)}, arg{"engine-id", []byte("x")})),
		"cut":                frameOf(1, 1, 0, 0, []byte{14}),
		"fragmented":         append([]byte{0, 0, 0, 7, 1}, 0, 0, 0, 0, 0, 0),
		"short, then closed": helloOf(16380)[:30],
	}
	n := uint64(0)
	for what, b := range broken {
		c := r.dial(t)
		c.Write(b)
		if what == "short, then closed" {
			c.Close()
		} else if a, err := c.read(); err == nil && a.kind != 102 {
			t.Errorf("%s: answer %+v", what, a)
		}
		n++
		eventually(t, what, func() bool { return r.Stats().Malformed == n && r.Stats().Open == 0 })
	}
	if s := r.Stats(); s.Panics != 0 || s.Messages != 0 {
		t.Errorf("%+v", s)
	}
}

// TestBrokenFramesUnderLoad throws 10,000 broken frames at a server while good
// traffic goes on: every good message is answered right and the log stays short.
func TestBrokenFramesUnderLoad(t *testing.T) {
	var out syncBuffer
	r := start(t, "unix", &Server{Handler: echo, Log: slog.New(slog.NewTextHandler(&out, nil))})
	var broken [][]byte
	for _, b := range brokenFrames() {
		broken = append(broken, b)
	}
	began := time.Now()
	stop := make(chan struct{})
	var good, bad sync.WaitGroup
	answered := make([]int, 2)
	for k := range answered {
		c := r.connect(t, 200_000)
		c.SetDeadline(time.Now().Add(time.Minute))
		good.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				b := body(i, []int{10, 5_000, 20_000, 150_000}[i%4])
				a, err := c.ask(uint64(i), messageOf("m", arg{"body", b}))
				if err != nil || a.vars["got"] != sum(b) {
					t.Errorf("message %d of %d bytes: %v, %v", i, len(b), a, err)
					return
				}
				answered[k]++
			}
		})
	}
	for k := range 4 {
		bad.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(k)))
			for range 2_500 {
				c, err := net.Dial("unix", r.addr.String())
				if err != nil {
					t.Error(err)
					return
				}
				b := broken[rng.IntN(len(broken))]
				if rng.IntN(8) > 0 { // else without HELLO
					b = append(helloOf(16380), b...)
				}
				c.SetDeadline(time.Now().Add(20 * time.Second))
				c.Write(b)
				if _, err := io.Copy(io.Discard, c); isTimeout(err) {
					t.Error("a broken connection stays open")
				}
				c.Close()
			}
		})
	}
	bad.Wait()
	close(stop)
	good.Wait()
	eventually(t, "only the good connections are left", func() bool { return r.Stats().Open == len(answered) })
	s := r.Stats()
	if s.Malformed != 10_000 || s.Panics != 0 {
		t.Errorf("%+v", s)
	}
	for k, n := range answered {
		if n == 0 {
			t.Errorf("good connection %d was starved", k)
		}
	}
	if lines, most := strings.Count(out.String(), "\n"), int(time.Since(began).Seconds())+2; lines > most {
		t.Errorf("%d log lines, at most one a second would be %d", lines, most)
	}
}

func isTimeout(err error) bool {
	t, ok := err.(net.Error)
	return ok && t.Timeout()
}

// pipe serves one end of a net.Pipe and returns the other as a client.
func pipe(s *Server) (*client, chan struct{}) {
	a, b := net.Pipe()
	s.Log = slog.New(slog.DiscardHandler)
	done := make(chan struct{})
	go func() {
		defer close(done)
		newConn(s, a).serve()
	}()
	return &client{b, bufio.NewReader(b)}, done
}

// TestSlowPeers: whoever does not say HELLO, stops within a frame, trickles it
// or does not read is closed in time; whoever is only idle stays.
func TestSlowPeers(t *testing.T) {
	frame := notifyOf(1, 1, messageOf("m", arg{"body", body(1, 20_000)}))
	cases := []struct {
		name  string
		greet bool
		do    func(c *client)
		want  time.Duration
	}{
		{"silent before hello", false, func(c *client) {}, frameTimeout},
		{"trickled hello", false, func(c *client) { trickle(c, helloOf(16380)) }, frameTimeout},
		{"stops in the length", true, func(c *client) { c.Write(frame[:2]) }, frameTimeout},
		{"stops in the body", true, func(c *client) { c.Write(frame[:9_000]) }, frameTimeout},
		{"trickled frame", true, func(c *client) { trickle(c, frame) }, frameTimeout},
		{"idle", true, func(c *client) {}, DefaultIdleTimeout},
		{"does not read", true, func(c *client) { c.Write(frame) }, DefaultWriteTimeout},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{Handler: echo}
				c, done := pipe(s)
				if tc.greet {
					_, err := c.greet(100_000)
					must(t, err)
				}
				began := time.Now()
				stopped := make(chan struct{})
				go func() {
					defer close(stopped)
					tc.do(c)
				}()
				<-done
				if took := time.Since(began); took < tc.want*3/4 || took > tc.want+farewellLimit {
					t.Errorf("closed after %v, want about %v", took, tc.want)
				}
				c.Close()
				<-stopped
			})
		})
	}
}

// trickle writes a byte every second.
func trickle(c *client, b []byte) {
	for i := range b {
		if _, err := c.Write(b[i : i+1]); err != nil {
			return
		}
		time.Sleep(time.Second)
	}
}

// TestIdleBetweenFrames: the pause between frames is measured anew after each.
func TestIdleBetweenFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Handler: echo}
		c, done := pipe(s)
		_, err := c.greet(100_000)
		must(t, err)
		for i := range uint64(5) {
			time.Sleep(time.Hour)
			b := body(int(i), 100<<(2*i)) // small and large
			a, err := c.ask(i, messageOf("m", arg{"body", b}))
			must(t, err)
			if a.vars["got"] != sum(b) {
				t.Errorf("message %d: %v", i, a)
			}
		}
		c.Close()
		<-done
	})
}

// TestFramesWithoutPause: each frame has its own time, also where a part of the
// next one always comes with it.
func TestFramesWithoutPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, done := pipe(&Server{Handler: echo})
		_, err := c.greet(100_000)
		must(t, err)
		const n = 20
		var all []byte
		for i := range uint64(n) {
			all = append(all, notifyOf(i, 1, messageOf("m", arg{"body", body(int(i), 300)}))...)
		}
		size := len(all) / n
		go func() {
			for at := size / 2; at > 0; {
				c.Write(all[:at])
				all, at = all[at:], min(size, len(all)-at)
				time.Sleep(frameTimeout / 2)
			}
		}()
		for i := range uint64(n) {
			if a, err := c.read(); err != nil || a.kind != 103 || a.stream != i {
				t.Fatalf("frame %d: %+v, %v", i, a, err)
			}
		}
		time.Sleep(frameTimeout)
		c.Close()
		<-done
	})
}

// FuzzFrames feeds any bytes to a connection, before and after HELLO. Whatever
// they are, the server survives without a panic of its own or the library's,
// ends the connection and allocates in proportion to what it was sent.
func FuzzFrames(f *testing.F) {
	for _, b := range brokenFrames() {
		f.Add(b, true)
		f.Add(b, false)
	}
	big := notifyOf(1<<40, 3, messageOf("m", arg{"a", body(1, 3_000)}, arg{"body", body(1, 20_000)}), messageOf("n", arg{"i", int64(-1)}))
	f.Add(append(big, big...), true)
	f.Add(append(big, disconnectFrame...), true)
	f.Add(helloOf(16380, arg{"healthcheck", true}), false)
	f.Add(append(helloOf(1<<20), big...), false)
	f.Fuzz(func(t *testing.T, b []byte, greet bool) {
		s := &Server{Handler: func(m *Message, w *Reply) {
			for _, k := range []string{"a", "body", "i", ""} {
				m.Int(k)
				m.Bool(k)
				w.SetString(k, m.String(k))
			}
			w.SetInt(m.Name(), sum(m.Bytes("body")))
		}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c, done := pipe(s)
		read := make(chan struct{})
		go func() {
			defer close(read)
			io.Copy(io.Discard, c)
		}()
		if greet {
			c.Write(helloOf(64_000))
		}
		c.Write(b)
		c.Close()
		<-done
		<-read
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 2<<20+100*uint64(len(b)) {
			t.Errorf("%d bytes allocated for %d", n, len(b))
		}
		if p := s.Stats().Panics; p != 0 {
			t.Errorf("%d panics", p)
		}
	})
}
