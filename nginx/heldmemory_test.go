//go:build !race

package nginx

import (
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/decider/queue"
	"pointsman/intake"
)

// heap is how much memory is in use.
func heap() int {
	var m runtime.MemStats
	for range 3 {
		runtime.GC() // a sync.Pool forgets in two rounds
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// connection is how much memory one end of a connection takes.
func connection(t *testing.T, path string) int {
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var ends [200]net.Conn
	before := heap()
	for i := 0; i < len(ends); i += 2 {
		if ends[i], err = net.Dial("unix", path); err != nil {
			t.Fatal(err)
		}
		if ends[i+1], err = l.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	each := (heap() - before) / len(ends)
	for _, c := range ends {
		c.Close()
	}
	return each
}

// A held request takes 2 KB, whatever its body.
func TestMemoryOfHeldRequests(t *testing.T) {
	const n = 300 // so that a buffer that is not of a request hardly counts
	client := connection(t, filepath.Join(t.TempDir(), "c"))
	for why, unit := range map[string]string{
		"a short body": "", "plain text": "word ", "escapes": `caf\u00e9\n`, "many messages": `"},{"role":"user","content":"x`,
	} {
		a := ask(t, Options{})
		a.in.Apply(intake.Config{Pools: []decider.PoolConfig{{
			Name: "llama", Models: []string{"my-llama"}, Policy: policy.LeastWork{}, PolicyName: "least_work", PolicyKey: "least_work",
			Replicas:  []decider.ReplicaConfig{{Name: "r1", Address: "10.0.0.1:8000", Limit: 1}},
			Admission: &decider.Admission{Hold: true, Bands: []queue.Band{{Name: "all", MaxRequests: 1000, TTL: time.Hour}}},
		}}})
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "a"))
		if err != nil {
			t.Fatal(err)
		}
		go a.Serve(l) // until Shutdown
		first := fmt.Sprintf("%032x", 1)
		a.post(t, chat, "X-Pointsman-Id", first)
		var conns [n]net.Conn
		ask := func(i int) {
			if conns[i], err = net.Dial("unix", l.Addr().String()); err != nil {
				t.Fatal(err)
			}
			var text string
			if unit != "" {
				text = strings.Repeat(unit, (1<<20-200)/len(unit))
			}
			body := fmt.Sprintf(`{"model":"my-llama","messages":[{"role":"user","content":"%d %s"}]}`, i, text)
			fmt.Fprintf(conns[i], "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Pointsman-Id: %032x\r\nContent-Length: %d\r\n\r\n%s", i+2, len(body), body)
			a.queued(t, i+1)
			// A pool that gets no report for long sends what waits, however full it is.
			a.d.Pools()[0].FirstToken(decider.ParseID([]byte(first)), []byte("r1"))
		}
		ask(0)
		before := heap()
		for i := 1; i < n; i++ {
			ask(i)
		}
		each := (heap()-before)/(n-1) - client
		t.Logf("%s: %d bytes a request", why, each)
		if each > 2048 {
			t.Errorf("%s: %d bytes a request", why, each)
		}
		if b := a.memory.Load(); b != 0 {
			t.Errorf("%s: %d bytes of bodies", why, b)
		}
		a.d.Drain()
		for _, c := range conns {
			c.Close()
		}
	}
}
