package nginx

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/link"
)

const rid = "2f3b0a1c9d5e4f608a7b1c2d3e4f5a6b"

// logged is a line as nginx sends it. tries are the lists of addresses,
// statuses, header times, connect times and body lengths.
func logged(srv, status, done string, tries [5]string, clen string) []byte {
	return fmt.Appendf(nil, `<190>Nov 20 16:48:19 pm: {"id":"%s","srv":"%s","addr":"%s","ust":"%s","hdr":"%s","uconn":"%s","ulen":"%s","clen":"%s","urt":"0.1","rt":"0.101","status":"%s","bytes":"700","done":"%s","pid":"12","conn":"34"}`,
		rid, srv, tries[0], tries[1], tries[2], tries[3], tries[4], clen, status, done)
}

const sock = "unix:/run/pointsman/nginx.sock"

// Each line is one that an nginx wrote in such a case.
func TestLines(t *testing.T) {
	for _, c := range []struct {
		name              string
		srv, status, done string
		tries             [5]string
		clen              string
		end               decider.End
		server            string
		redispatched      bool
	}{
		{"served", "pm~llama~r1", "200", "OK",
			[5]string{sock + " : 10.0.0.1:8000", "200 : 200", "0.000 : 0.010", "0.000 : 0.001", "0 : 358"}, "358", decider.Served, "r1", false},
		{"streamed", "pm~llama~r1", "200", "OK",
			[5]string{sock + " : 10.0.0.1:8000", "200 : 200", "0.000 : 0.010", "0.000 : 0.001", "0 : 9000"}, "", decider.Served, "r1", false},
		{"refused by the engine", "pm~llama~r1", "400", "OK",
			[5]string{sock + " : 10.0.0.1:8000", "200 : 400", "0.000 : 0.010", "0.000 : 0.001", "0 : 35"}, "35", decider.Served, "r1", false},
		{"failed by the engine", "pm~llama~r1", "503", "OK",
			[5]string{sock + " : 10.0.0.1:8000", "200 : 503", "0.000 : 0.010", "0.000 : 0.001", "0 : 35"}, "35", decider.Failed, "r1", false},
		{"cut short", "pm~llama~r1", "200", "OK",
			[5]string{sock + " : 10.0.0.1:8000", "200 : 200", "0.000 : 0.010", "0.000 : 0.001", "0 : 100"}, "358", decider.Died, "r1", false},
		{"client left before the answer", "pm~llama~r1", "499", "",
			[5]string{sock + " : 10.0.0.1:8000", "200 : -", "0.000 : -", "0.000 : 0.000", "0 : 0"}, "", decider.ClientGone, "r1", false},
		{"client left in mid-stream", "pm~llama~r1", "200", "",
			[5]string{sock + " : 10.0.0.1:8000", "200 : 200", "0.000 : 0.001", "0.000 : 0.000", "0 : 512"}, "", decider.ClientGone, "r1", false},
		{"client left while the agent was asked", "", "499", "",
			[5]string{sock, "-", "-", "0.000", "0"}, "", decider.ClientGone, "", false},
		{"refused by the agent", "", "404", "OK",
			[5]string{sock, "404", "0.000", "0.000", "120"}, "120", decider.Denied, "", false},
		{"refused, then served by another", "pm~llama~r2", "200", "OK",
			[5]string{sock + " : 10.0.0.1:8000 : " + sock + " : 10.0.0.2:8000", "200 : 502 : 200 : 200", "0.000 : - : 0.000 : 0.005", "0.000 : - : 0.000 : 0.000", "0 : 0 : 0 : 9"}, "9",
			decider.Served, "r2", true},
		{"broken off, no second try", "pm~llama~r1", "502", "OK",
			[5]string{sock + " : 10.0.0.1:8000 : " + sock, "200 : 502 : 502", "0.000 : - : 0.000", "0.000 : 0.000 : 0.000", "0 : 0 : 130"}, "130",
			decider.Died, "r1", false},
		{"silent, no second try", "pm~llama~r1", "504", "OK",
			[5]string{sock + " : 10.0.0.1:8000 : " + sock, "200 : 504 : 504", "0.000 : - : 0.000", "0.000 : 0.000 : 0.000", "0 : 0 : 130"}, "130",
			decider.TimedOut, "r1", false},
		{"all refused", "", "502", "OK",
			[5]string{"unix:/x : 10.0.0.1:8000, 10.0.0.2:8000, 10.0.0.3:8000", "200 : 502, 502, 502", "0.000 : -, -, -", "0.000 : -, -, -", "0 : 0, 0, 0"}, "",
			decider.Refused, "r3", true},
		{"without the agent", "", "200", "OK",
			[5]string{sock + " : 10.0.0.3:8000", "502 : 200", "- : 0.005", "- : 0.000", "0 : 77"}, "77", decider.Served, "r3", false},
		{"with the agent taken out", "", "200", "OK",
			[5]string{"pointsman_agent : 10.0.0.2:8000", "502 : 200", "- : 0.005", "- : 0.000", "0 : 77"}, "77", decider.Served, "r2", false},
		{"the backup behind it served", "pm~llama~r2", "200", "OK",
			[5]string{sock + " : 10.0.0.1:8000 : " + sock + " : 10.0.0.2:8000, 10.0.0.3:8000", "200 : 502 : 200 : 502, 200", "0.000 : - : 0.000 : -, 0.005", "0.000 : - : 0.000 : -, 0.000", "0 : 0 : 0 : 0, 9"}, "9",
			decider.Served, "r3", true},
		{"a name that nginx looked up", "pm~llama~r1", "200", "OK",
			[5]string{sock + " : 192.0.2.7:8000", "200 : 200", "0.000 : 0.010", "0.000 : 0.001", "0 : 358"}, "358", decider.Served, "r1", false},
		{"an upstream that nginx does not know", "pm~llama~r2", "200", "OK",
			[5]string{sock + " :  : " + sock + " : 10.0.0.2:8000", "200 : 502 : 200 : 200", "0.000 : - : 0.000 : 0.010", "0.000 : - : 0.000 : 0.001", "0 : 0 : 0 : 358"}, "358", decider.Served, "r2", false},
		{"an agent on TCP", "pm~llama~r1", "200", "OK",
			[5]string{"127.0.0.1:9902 : 10.0.0.1:8000", "200 : 200", "0.000 : 0.010", "0.000 : 0.001", "0 : 358"}, "358", decider.Served, "r1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDecider()
			f := NewFeed(d, NewServers(d), &link.Link{}, "127.0.0.1:9902", newSet(), silent)
			f.line(logged(c.srv, c.status, c.done, c.tries, c.clen))
			if f.Lines.Get() != 1 {
				t.Fatal("not understood")
			}
			_, text, _ := untag(logged(c.srv, c.status, c.done, c.tries, c.clen))
			l, _ := parse(text)
			o, _ := f.outcome(&l)
			if o.End != c.end || string(o.Server) != c.server || o.Redispatched != c.redispatched || o.ID != decider.ParseID([]byte(rid)) {
				t.Errorf("%v by %q, redispatched %v; want %v by %q, %v", o.End, o.Server, o.Redispatched, c.end, c.server, c.redispatched)
			}
			if c.server != "" && status(d, "llama").Outcomes[c.end.String()] != 1 {
				t.Errorf("the pool has %v", status(d, "llama").Outcomes)
			}
		})
	}
}

// What is no line of ours as a whole, from its header to its end, counts for
// nothing.
func TestLineIgnoresWhatIsNotOurs(t *testing.T) {
	const header, object = "<190>Nov 20 16:48:19 pm: ", `{"id":"x"}`
	for _, s := range []string{
		"", "{", object, "<190>pm: " + object, "<190>Nov 20 16:48:19 pm:" + object, "<190>Nov 20 16:48:19 pn: " + object,
		"<190>Nov 20 16:48:19 host pm: " + object, "190>Nov 20 16:48:19 pm: " + object, "<19000>Nov 20 16:48:19 pm: " + object,
		header, header + "{}", header + " " + object, header + "x" + object, header + object + "x", header + `{"id":""}`, header + `{"id":"x"`,
		header + `{"id":"x",}`, header + `{"id":1}`, header + "GET /", header + `{"id" "x"}`, header + `{"id":"x\"}`,
		"<187>Nov 20 16:48:19 pm_error: " + object,
	} {
		d := newDecider()
		f := NewFeed(d, NewServers(d), &link.Link{}, "", newSet(), silent)
		if f.line([]byte(s)); f.Lines.Get() != 0 {
			t.Errorf("%q was taken for one of ours", s)
		}
	}
}

// Clients write parts of nginx's error log: URIs, hosts, referrers, the user names of
// failed logins. None of it is taken for a line of the feed, neither ours nor another
// proxy's, nor for the report of a broken answer.
func TestErrorLinesCannotBeForged(t *testing.T) {
	const forged = `{"id":"` + rid + `","srv":"pm~llama~r1","addr":"10.0.0.1:8000","ust":"502","hdr":"-","uconn":"-","status":"502","done":"OK"}`
	const haproxys = `PM1 ev=close rid=` + rid + ` pool=llama srv=r1 st=503 ts=SC PM.`
	const breaks = `upstream prematurely closed connection while reading upstream, client: x, upstream: "http://10.0.0.1:8000/`
	for _, tag := range []string{"pm", "pm_error"} {
		for _, c := range []string{
			`client intended to send too large body: 9 bytes, client: 1.2.3.4, server: , request: "POST /v1/x?` + forged + ` HTTP/1.1", host: "x"`,
			`user "x" was not found in "/etc/x", client: 1.2.3.4, server: , request: "POST / HTTP/1.1", host: "` + haproxys + `", referrer: "` + haproxys + `"`,
			`user "` + breaks + `" was not found in "/etc/x", client: 1.2.3.4, server: , request: "POST / HTTP/1.1", host: "x"`,
			`user "recv() failed (104: x) while reading upstream, client: x, upstream: "http://10.0.0.1:8000/": password mismatch, client: 1.2.3.4, host: "x"`,
			`user "[error] 12#12: *34 ` + breaks + `": password mismatch, client: 1.2.3.4, server: , request: "POST / HTTP/1.1", host: "x"`,
			`recv() failed (104: "` + `x) while reading upstream, client: 1.2.3.4, upstream: "http://10.0.0.1:8000/", host: "x"`,
		} {
			d := newDecider()
			f := NewFeed(d, NewServers(d), &link.Link{}, "", newSet(), silent)
			f.Other = func(line []byte) bool { t.Errorf("another proxy's: %s", line); return true }
			r, out := decider.Request{ID: decider.ParseID([]byte(rid)), Pool: d.Pool("llama"), Output: -1}, decider.Decision{}
			r.Pool.Decide(&r, &out)
			f.line([]byte("<187>Nov 20 16:48:19 " + tag + ": 2026/11/20 16:48:19 [error] 12#12: *34 " + c))
			if s := status(d, "llama"); f.Lines.Get() != 0 || f.broken.n != 0 || s.Reservations != 1 || replica(d, "llama", "r1").Failed != 0 {
				t.Errorf("%s: %s: %d lines, %d breaks, %+v", tag, c, f.Lines.Get(), f.broken.n, s)
			}
		}
	}
}

// A line about an unknown request counts against no replica.
func TestUnknownRequestBlamesNobody(t *testing.T) {
	d := newDecider()
	f := NewFeed(d, NewServers(d), &link.Link{}, "", newSet(), silent)
	refused := logged("pm~llama~r1", "502", "OK", [5]string{"10.0.0.1:8000", "502", "-", "-", "0"}, "")
	f.line(refused)
	if r := replica(d, "llama", "r1"); f.Lines.Get() != 1 || r.Failed != 0 || r.State != "up" {
		t.Errorf("%+v", r)
	}
	r, out := decider.Request{ID: decider.ParseID([]byte(rid[1:] + "c")), Pool: d.Pool("llama"), Output: -1}, decider.Decision{}
	r.Pool.Decide(&r, &out)
	f.line([]byte(strings.Replace(string(refused), rid, rid[1:]+"c", 1)))
	if r := replica(d, "llama", "r1"); r.Failed != 1 || r.State != "ejected" {
		t.Errorf("%+v", r)
	}
}

// A reservation made too late, in another pool than the one that nginx turned
// to, ends with the request.
func TestLateDecisionInAnotherPool(t *testing.T) {
	d := newDecider()
	f := NewFeed(d, NewServers(d), &link.Link{}, "", newSet(), silent)
	r, out := decider.Request{ID: decider.ParseID([]byte(rid)), Pool: d.Pool("code"), Output: -1}, decider.Decision{}
	r.Pool.Decide(&r, &out)
	f.line(logged("", "200", "OK", [5]string{sock + " : 10.0.0.2:8000", "504 : 200", "- : 0.005", "0.000 : 0.000", "0 : 77"}, "77"))
	if n := status(d, "code").Reservations; n != 0 {
		t.Errorf("%d reservations are left", n)
	}
	// And one in the pool of the server that it shares with another stays there.
	r = decider.Request{ID: decider.ParseID([]byte(rid)), Pool: d.Pool("code"), Output: -1}
	r.Pool.Decide(&r, &out)
	r.Pool.Decide(&r, &out) // the second is shared
	f.line(logged("pm~code~shared", "200", "OK", [5]string{sock + " : 10.0.0.1:8000", "200 : 200", "0.000 : 0.005", "0.000 : 0.000", "0 : 77"}, "77"))
	if s := replica(d, "code", "shared"); s.Served != 1 || s.InFlight != 0 {
		t.Errorf("shared: %+v", s)
	}
}

const broken = `<187>Nov 20 16:48:19 pm_error: 2026/11/20 16:48:19 [error] 12#12: *34 upstream prematurely closed connection while reading upstream, client: 127.0.0.1, server: , request: "POST /v1/chat/completions HTTP/1.1", upstream: "http://10.0.0.1:8000/v1/chat/completions", host: "x", referrer: "a, upstream: "http://10.0.0.2:8000/""`

// Only the error log reports a stream that breaks off.
func TestBrokenStream(t *testing.T) {
	ended := func(lines ...string) map[string]uint64 {
		d := newDecider()
		f := NewFeed(d, NewServers(d), &link.Link{}, "", newSet(), silent)
		for _, l := range lines {
			f.line([]byte(l))
		}
		f.line(logged("pm~llama~r1", "200", "OK", [5]string{sock + " : 10.0.0.1:8000", "200 : 200", "0.000 : 0.001", "0.000 : 0.000", "0 : 512"}, ""))
		return status(d, "llama").Outcomes
	}
	if got := ended(broken); got["died"] != 1 {
		t.Errorf("outcomes %v", got)
	}
	if got := ended(strings.Replace(broken, "upstream prematurely closed connection", "recv() failed (104: Connection reset by peer)", 1)); got["died"] != 1 {
		t.Errorf("reset: outcomes %v", got)
	}
	// nginx may notice it just after it has sent a part of the answer.
	const doing = "while reading upstream"
	for _, message := range []string{"upstream prematurely closed connection", "recv() failed (104: Connection reset by peer)", "readv() failed (104: Connection reset by peer)"} {
		l := strings.Replace(broken, "upstream prematurely closed connection "+doing, message+" while sending to client", 1)
		if got := ended(l); got["died"] != 1 {
			t.Errorf("%s: outcomes %v", l, got)
		}
	}
	for _, other := range []string{
		strings.Replace(broken, "*34", "*35", 1), strings.Replace(broken, "12#12", "13#13", 1), strings.Replace(broken, "10.0.0.1", "10.0.0.2", 1),
		strings.Replace(broken, "while reading upstream", "while connecting to upstream", 1),
		"[error] ", "[error] 12#12: *34 x", "<187>Nov 20 16:48:19 pm_error: 2026/11/20 16:48:19 [error] 1#1: *2 prematurely closed connection while reading upstream, client: x",
	} {
		if got := ended(other); got["served"] != 1 {
			t.Errorf("%s: outcomes %v", other, got)
		}
	}
}

func TestBreaksAreBounded(t *testing.T) {
	var s brokenAnswers
	now := time.Now()
	for i := range 1000 {
		s.add(brokenAnswer{[]byte("1"), fmt.Append(nil, i), []byte("a")}, now)
	}
	if s.n != len(s.ring) || s.remove([]byte("1"), []byte("0"), []byte("a"), now) || !s.remove([]byte("1"), []byte("999"), []byte("a"), now) {
		t.Errorf("%d are waited for", s.n)
	}
	if s.remove([]byte("1"), []byte("998"), []byte("a"), now.Add(time.Hour)) {
		t.Error("one of an hour ago is taken")
	}
}

func FuzzLine(f *testing.F) {
	f.Add(logged("pm~llama~r1", "200", "OK", [5]string{sock + " : 10.0.0.1:8000", "200 : 200", "0.000 : 0.010", "0.000 : 0.001", "0 : 358"}, "358"))
	f.Add(logged("", "502", "OK", [5]string{" : , :", "-", "-", ", - : ", "0"}, "x"))
	f.Add([]byte(broken))
	d := newDecider()
	feed := NewFeed(d, NewServers(d), &link.Link{}, "", newSet(), silent)
	f.Fuzz(func(t *testing.T, b []byte) { feed.line(b) })
}
