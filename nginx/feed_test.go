package nginx

import (
	"fmt"
	"net"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/link"
)

// Every line is read, and settles its request.
func TestFeedKeepsUp(t *testing.T) {
	d := newDecider()
	f := NewFeed(d, NewServers(d), &link.Link{}, "", newSet(), silent)
	var others int
	f.Other = func(line []byte) bool { others++; return string(line) == "haproxy's" }
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- f.Serve(c) }()
	out, err := net.Dial("udp", c.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	const n = 5000
	pool := d.Pool("llama")
	var decision decider.Decision
	for i := range n {
		id := fmt.Sprintf("%032x", i)
		r := decider.Request{ID: decider.ParseID([]byte(id)), Pool: pool, Output: -1}
		pool.Decide(&r, &decision)
		address := map[string]string{"r1": "10.0.0.1:8000", "r2": "10.0.0.2:8000", "r3": "10.0.0.3:8000"}[decision.Server]
		fmt.Fprintf(out, `<190>Nov 20 16:48:19 pm: {"id":"%s","srv":"pm~llama~%s","addr":"%s : %s","ust":"200 : 200","hdr":"0.000 : 0.010","uconn":"0.000 : 0.001","ulen":"0 : 358","clen":"358","status":"200","done":"OK"}`,
			id, decision.Server, sock, address)
		if int(f.Lines.Get()) < i-100 { // the kernel's buffer holds some 300
			eventually(t, "the feed keeps up", func() bool { return int(f.Lines.Get()) >= i-100 })
		}
	}
	out.Write([]byte("haproxy's"))
	out.Write([]byte("nobody's"))
	out.Write([]byte(`<190>Nov 20 16:48:19 pm: {"id":"cut`))
	eventually(t, "all is read", func() bool { return f.Lines.Get()+f.Ignored.Get()+f.Malformed.Get() == n+2 })
	f.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	s := status(d, "llama")
	if f.Lines.Get() != n || f.Dropped.Get() != 0 || f.Ignored.Get() != 1 || f.Malformed.Get() != 1 || others != 2 {
		t.Errorf("%d lines, %d dropped, %d ignored, %d malformed, %d others", f.Lines.Get(), f.Dropped.Get(), f.Ignored.Get(), f.Malformed.Get(), others)
	}
	if s.Reservations != 0 || s.Outcomes["served"] != n || s.Stats.Mismatches != 0 {
		t.Errorf("%+v", s)
	}
}

// Datagrams that the kernel drops are counted: nothing reads this socket.
func TestDropped(t *testing.T) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	port := c.LocalAddr().(*net.UDPAddr).Port
	if n := kernelDrops(port); n != 0 {
		t.Errorf("%d at the start", n)
	}
	out, err := net.Dial("udp", c.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for range 10_000 {
		out.Write(make([]byte, 1000))
	}
	if n := kernelDrops(port); n == 0 {
		t.Error("none of 10 MB")
	}
}

func BenchmarkLine(b *testing.B) {
	d := newDecider()
	f := NewFeed(d, NewServers(d), &link.Link{}, "", newSet(), silent)
	l := logged("pm~llama~r1", "200", "OK", [5]string{sock + " : 10.0.0.1:8000", "200 : 200", "0.000 : 0.010", "0.000 : 0.001", "0 : 358"}, "358")
	b.ReportAllocs()
	for b.Loop() {
		f.line(l)
	}
}

// Lines show what is wrong with nginx's configuration: requests that nobody served
// without a decision, and those that nginx ended by itself.
func TestSignsOfFaults(t *testing.T) {
	d := newDecider()
	k := &link.Link{Proxy: "nginx"}
	f := NewFeed(d, NewServers(d), k, "", newSet(), silent)
	for _, line := range []string{
		`{"id":"x","srv":"","addr":"` + sock + `","ust":"504","hdr":"-","uconn":"0.000","status":"502"}`,
		`{"id":"x","srv":"","addr":"","ust":"","status":"500"}`,
	} {
		for range 3 {
			f.line([]byte("<190>Nov 20 16:48:19 pm: " + line))
		}
	}
	found := k.Status(time.Now()).Faults
	if len(found) != 2 || found[0].Fault != "unserved" || found[1].Fault != "lost" || found[0].Count != 3 || found[1].Count != 3 {
		t.Errorf("%v", found)
	}
}

// slow is a policy that takes until its channel is closed.
type slow chan struct{}

func (s slow) Rank(_ *decider.Request, v *decider.View, dst []int) []int {
	<-s
	return append(dst, v.Candidates[0])
}

// While a pool is locked, the socket is emptied.
func TestFeedReadsWhileAPoolIsLocked(t *testing.T) {
	d := newDecider()
	policy := make(slow)
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: policy, PolicyName: "slow", PolicyKey: "slow", Replicas: []decider.ReplicaConfig{{Name: "r1", Address: "10.0.0.1:8000"}}}}})
	f := NewFeed(d, NewServers(d), &link.Link{}, "", newSet(), silent)
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go f.Serve(c)
	decided := make(chan struct{})
	go func() {
		var decision decider.Decision
		pool := d.Pool("llama")
		pool.Decide(&decider.Request{ID: decider.ParseID([]byte(fmt.Sprintf("%032x", 1))), Pool: pool}, &decision)
		close(decided)
	}()
	eventually(t, "the pool is locked", d.Locked)
	out, err := net.Dial("udp", c.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	const n = 3000 // more than the kernel's buffer holds
	for i := range n {
		fmt.Fprintf(out, `<190>Nov 20 16:48:19 pm: {"id":"%032x","srv":"pm~llama~r1","addr":"%s : 10.0.0.1:8000","ust":"200 : 200","status":"200","done":"OK"}`, i, sock)
		if i%50 == 0 {
			eventually(t, "the socket is emptied", func() bool { return int(f.waiting.Load()) >= i-50 })
		}
	}
	close(policy)
	<-decided
	eventually(t, "all is handled", func() bool { return f.Lines.Get() == n && f.waiting.Load() == 0 })
	f.Close()
}
