package adversary

import (
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pointsman/test/rig"
)

// answersOf are what a hostile runtime API answers to a command, by name. Each writes
// until it is done or the agent has left.
func answersOf() map[string]func(c net.Conn) {
	const header = "# pxname,svname,qcur,qmax,scur,smax,status,weight,addr\n"
	stream := func(line func(i int) string, n int) func(c net.Conn) {
		return func(c net.Conn) {
			var b bytes.Buffer
			b.WriteString(header)
			for i := range n {
				b.WriteString(line(i))
				if b.Len() > 64<<10 {
					if _, err := c.Write(b.Bytes()); err != nil {
						return
					}
					b.Reset()
				}
			}
			b.WriteByte('\n') // as HAProxy ends its answers
			_, _ = c.Write(b.Bytes())
		}
	}
	say := func(text string) func(c net.Conn) {
		return func(c net.Conn) { _, _ = c.Write([]byte(text)) }
	}
	return map[string]func(c net.Conn){
		"nothing": func(c net.Conn) {},
		"never":   func(c net.Conn) { time.Sleep(20 * time.Second) },
		"one by one": func(c net.Conn) {
			for range 40 {
				if _, err := c.Write([]byte("#")); err != nil {
					return
				}
				time.Sleep(500 * time.Millisecond)
			}
		},
		"nonsense":   say("\x00\xff\xfe,,,\n\n\nUnknown command. Please enter one of the following commands only :\n"),
		"half":       say(header[:20]),
		"no columns": say("# a,b,c\nx,y,z\n"),
		"zeros":      stream(func(int) string { return strings.Repeat("\x00", 4096) }, 10_000),
		"one line":   stream(func(int) string { return strings.Repeat("a", 4096) }, 10_000),
		"a flood":    stream(func(i int) string { return fmt.Sprintf("pool%d,srv%d,0,0,0,0,UP,1,10.0.0.1:80\n", i, i) }, 2_000_000),
		"quotes":     stream(func(i int) string { return fmt.Sprintf("llama,r%d,0,0,0,0,\"UP,1,\n,\"\"10.0.0.1:80\n", i%3) }, 31),
		"odd numbers": stream(func(i int) string {
			return fmt.Sprintf("llama,r%d,-1,0,99999999999999999999,0,UP,-9223372036854775808,x\n", i%3)
		}, 30),
		"odd states": stream(func(i int) string {
			return fmt.Sprintf("llama,r%d,0,0,1e9,0,%s,1,\xff\n", i%3, strings.Repeat("DOWN?", 100))
		}, 30),
	}
}

// TestHostileRuntimeAPI puts something else in the place of HAProxy's runtime API: it
// answers nonsense, without end, or never. The replicas keep their state or get one
// that can be, requests go on, and the agent does not grow.
func TestHostileRuntimeAPI(t *testing.T) {
	rig.OnEach(t, rig.That(rig.Rotated(t), func(can rig.Abilities) bool { return can.Runtime }), func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 3, "least_requests")
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		s.Serve(client, 6)
		path := filepath.Join(s.Dir, "hostile.sock")
		asked := make(chan string, 100)
		list := answersOf()
		var current = make(chan func(net.Conn), 1)
		current <- list["nothing"]
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					b := make([]byte, 256)
					c.SetDeadline(time.Now().Add(20 * time.Second))
					n, _ := c.Read(b)
					select {
					case asked <- string(b[:n]):
					default:
					}
					f := <-current
					current <- f
					f(c)
				}()
			}
		}()
		s.Agent.Signal(syscall.SIGTERM)
		<-s.Agent.Ended
		s.Edit(filepath.Join(s.Dir, "haproxy.sock"), path)
		s.Agent.Start()
		s.Proxy.AwaitAgent()
		brief := []string{"never", "nonsense", "a flood", "odd states"}
		for name, f := range list {
			if !rig.Soak && !slices.Contains(brief, name) {
				continue
			}
			<-current
			current <- f
			for len(asked) > 0 {
				<-asked
			}
			<-asked // the agent asks again, after all of this
			<-asked
			start := time.Now()
			by := s.Serve(client, 4)
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("%s: four requests took %v", name, took)
			}
			t.Logf("%s: served by %v, %d MiB", name, by, s.Agent.RSS()>>20)
		}
		if rss := s.Agent.RSS(); rss > 128<<20 && !rig.Raced {
			t.Errorf("the agent takes %d MiB", rss>>20)
		}
		if pools := s.Agent.Pools(); len(pools) != 1 || len(pools[0].Replicas) != 3 {
			t.Errorf("the agent has %+v", pools)
		}
		<-current
		current <- list["nothing"]
	})
}
