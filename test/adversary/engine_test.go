package adversary

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"pointsman/engine/zmtp"
	"pointsman/test/rig"
)

// hostile is an engine that serves requests well and lies about the rest: what the
// agent asks of it takes for ever, has no end, or is nonsense.
type hostile struct {
	*rig.Engine
	asked chan string // paths that the agent asked
}

func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/metrics", "/tokenize", "/v1/models", "/version":
		select {
		case h.asked <- r.URL.Path:
		default:
		}
	}
	switch r.URL.Path {
	case "/metrics":
		w.Header().Set("Content-Type", "text/plain")
		for _, v := range []string{"NaN", "+Inf", "-Inf", "-1", "1e308", "18446744073709551616", "0x10", "\xff", strings.Repeat("9", 400)} {
			fmt.Fprintf(w, "vllm:num_requests_running{engine=\"0\"} %s\nvllm:num_requests_waiting{engine=\"0\"} %[1]s\nvllm:kv_cache_usage_perc %[1]s\nvllm:num_requests_running{a=\"\n", v)
		}
		flood(w, "vllm:num_requests_waiting{engine=\"%d\",x=\"y\"} 1\n", 100<<20)
	case "/tokenize":
		fmt.Fprint(w, `{"count":99999999999999999999,"max_model_len":-1,"tokens":[`)
		flood(w, "%d,", 100<<20)
	case "/v1/models":
		fmt.Fprint(w, `{"object":"list","data":[`)
		flood(w, `{"id":"m%d","max_model_len":1e308,"root":"x"},`, 100<<20)
	default:
		h.Engine.ServeHTTP(w, r)
	}
}

// flood writes lines until n bytes are written, or the agent has had enough.
func flood(w http.ResponseWriter, format string, n int) {
	chunk := make([]byte, 0, 64<<10)
	for i := 0; n > 0; {
		for chunk = chunk[:0]; len(chunk) < 60<<10; i++ {
			chunk = fmt.Appendf(chunk, format, i)
		}
		if _, err := w.Write(chunk); err != nil {
			return
		}
		n -= len(chunk)
	}
}

// batches are hostile messages of KV-cache events: topic, number, payload.
func batches() (list [][][]byte) {
	number := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	topic := []byte("kv-events")
	add := func(n uint64, payload []byte) { list = append(list, [][]byte{topic, number(n), payload}) }
	// An event in MessagePack: ["BlockStored", hashes, parent, tokens, size, lora].
	event := func(parts ...[]byte) []byte {
		e := append([]byte{0x93, 0xcb}, binary.BigEndian.AppendUint64(nil, math.Float64bits(math.NaN()))...)
		e = append(e, 0x91, 0x90|byte(len(parts)+1), 0xab)
		e = append(e, "BlockStored"...)
		for _, p := range parts {
			e = append(e, p...)
		}
		return append(e, 0xff)
	}
	array32 := func(n uint32) []byte { return binary.BigEndian.AppendUint32([]byte{0xdd}, n) }
	uint64max := append([]byte{0xcf}, bytes.Repeat([]byte{0xff}, 8)...)
	nilValue := []byte{0xc0}
	add(0, nil)
	add(1, array32(math.MaxUint32))
	add(math.MaxUint64, []byte{0x93})
	add(0, []byte{0x93})
	add(3, bytes.Repeat([]byte{0x91}, 8<<20))                                                                              // arrays in arrays
	add(4, bytes.Repeat([]byte{0x81, 0xa1, 'a'}, 2<<20))                                                                   // maps in maps
	add(5, append([]byte{0x93, 0xc0}, bytes.Repeat([]byte{0x91}, 8<<20)...))                                               // and where events are
	add(6, event(array32(math.MaxUint32), nilValue, array32(0), uint64max, nilValue))                                      // 4 billion hashes
	add(7, event([]byte{0x91, 0x01}, uint64max, array32(math.MaxUint32), []byte{0x10}, nilValue))                          // 4 billion tokens
	add(8, event([]byte{0x91, 0xff}, []byte{0xff}, []byte{0x91, 0xff}, []byte{0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0}, nilValue)) // negative
	add(9, event([]byte{0x91, 0x01}, nilValue, []byte{0x91, 0x01}, []byte{0x00}, nilValue))                                // blocks of no tokens
	add(10, event([]byte{0xa3, 'x', 'y', 'z'}, []byte{0x90}, []byte{0x80}, []byte{0xc3}, []byte{0x91, 0x91}))              // wrong types
	add(2, []byte{0x93, 0xc0, 0x91, 0x91, 0xb0, 'A', 'l', 'l', 'B', 'l', 'o', 'c', 'k', 's', 'C', 'l', 'e', 'a', 'r', 'e', 'd', 0xc0})
	var many []byte // a block for each of 100,000 made-up prompts
	many = append(many, 0x93, 0xc0, 0x91, 0x96, 0xab)
	many = append(many, "BlockStored"...)
	many = append(many, array32(100_000)...)
	for i := range uint64(100_000) {
		many = append(append(many, 0xcf), number(i*0x9e3779b97f4a7c15)...)
	}
	many = append(many, 0xc0)
	many = append(many, array32(100_000)...)
	for range 100_000 {
		many = append(many, 0x07)
	}
	add(11, append(many, 0x01, 0xc0, 0xc0))
	list = append(list,
		[][]byte{topic}, [][]byte{topic, {1}, {2}}, [][]byte{{}, {}, {}}, [][]byte{bytes.Repeat(topic, 100_000), number(1), {0x90}},
		[][]byte{topic, number(12), {0x90}, {0x90}, {0x90}})
	return list
}

// TestHostileEngine has one of three engines answer what the agent asks of it, and
// publish KV-cache events, as somebody would who wants to harm it. Requests go on, in
// time, and the agent neither grows nor works without bound.
func TestHostileEngine(t *testing.T) {
	rig.OnEach(t, rig.Rotated(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		var pub zmtp.Publisher
		publish := &zmtp.Server{Kind: "PUB", Timeout: 10 * time.Second, Handle: pub.Handle}
		replay := &zmtp.Server{Kind: "ROUTER", Timeout: 10 * time.Second, Handle: func(c *zmtp.Conn) {
			for _, b := range batches() { // asked for or not
				if c.Send(append([][]byte{{}}, b[1:]...)...) != nil {
					return
				}
			}
			_, _ = c.Receive()
		}}
		var ports []string
		for _, s := range []*zmtp.Server{publish, replay} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = s.Serve(l) }()
			t.Cleanup(s.Close)
			ports = append(ports, l.Addr().String()[len("127.0.0.1:"):])
		}
		h := &hostile{Engine: rig.StartEngine(t, "bad", rig.EngineOptions{Models: []string{rig.Model}}), asked: make(chan string, 1000)}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: h}
		go func() { _ = server.Serve(l) }()
		t.Cleanup(func() { server.Close() })
		good := []*rig.Engine{rig.StartEngine(t, "r1", rig.EngineOptions{Models: []string{rig.Model}}), rig.StartEngine(t, "r2", rig.EngineOptions{Models: []string{rig.Model}})}
		s := rig.NewSite(t, r, fmt.Sprintf("pools: {%s: {models: [%s], engine: vllm, policy: kv_aware, replicas: {bad: {address: %q, kv_events: {port: %s, replay: %s}}, %s}}\n",
			rig.Pool, rig.Model, l.Addr().String(), ports[0], ports[1], strings.TrimPrefix(rig.ReplicasYAML(good...), "{")))
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		until := time.Now().Add(6 * time.Second)
		if rig.Soak {
			until = time.Now().Add(2 * time.Minute)
		}
		list := batches()
		var slowest time.Duration
		seen := map[string]int{}
		n := 0
		for ; time.Now().Before(until); n++ {
			pub.Send(list[n%len(list)]...)
			c := rig.Call{Body: rig.Chat(rig.Model, 900, 4, n%2 == 0, 131*n)} // new to every cache
			start := time.Now()
			a := c.Do(client, s.Front)
			slowest = max(slowest, time.Since(start))
			if err := c.Check(a); err != nil {
				t.Errorf("request %d: %v", n, err)
			}
			seen[a.Engine]++
		}
		asked := map[string]int{}
		for len(h.asked) > 0 {
			asked[<-h.asked]++
		}
		rss := s.Agent.RSS()
		t.Logf("%d requests, by %v, the slowest in %v; the agent asked %v and takes %d MiB", n, seen, slowest, asked, rss>>20)
		if n < 20 || seen["r1"] == 0 || seen["r2"] == 0 {
			t.Errorf("%d requests, served by %v", n, seen)
		}
		if asked["/metrics"] == 0 || asked["/tokenize"] == 0 {
			t.Errorf("the agent asked %v", asked)
		}
		if slowest > 5*time.Second {
			t.Errorf("a request took %v", slowest)
		}
		if rss > 512<<20 && !rig.Raced {
			t.Errorf("the agent takes %d MiB", rss>>20)
		}
		s.Idle(s.Agent.Settled(rig.Pool))
	})
}
