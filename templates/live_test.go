package templates_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pointsman/templates"
	"pointsman/test/proxies"
)

// TestLive holds the promises of the templates against every HAProxy at hand,
// in every form of installation.
func TestLive(t *testing.T) {
	for _, bin := range proxies.HAProxies(t) {
		for _, form := range forms {
			t.Run(bin.Version+"/"+form, func(t *testing.T) {
				t.Parallel()
				g := newRig(t, bin, form)
				g.absent()
				g.agent.answers(func(vars) vars { return nil })
				g.agent.start(t)
				t.Cleanup(g.agent.stop)
				g.returns()
				g.decided()
				g.fallbacks()
				g.refusedConnection()
				g.refusals()
				g.notAsked()
				g.firstByte()
				g.abortedStream()
				g.abortedBeforeFirstByte()
				g.abortedDecision()
				g.slowAgent()
				g.sizes()
				g.shapes()
				g.runtimeServer()
				g.frozen()
				g.returns()
				g.killed()
				g.absent()
				g.agent.start(t)
				g.returns()
				g.oneCloseLineEach()
				g.ownLog()
			})
		}
	}
}

// absent: without an agent, requests are served by all replicas of the pool
// that their model names.
func (g *rig) absent() {
	g.Helper()
	r1, r2 := g.r1.hits.Load(), g.r2.hits.Load()
	const most = 60 // leastconn may begin with the same server for a while
	for range most {
		if res, body := g.post(); res.StatusCode != 200 {
			g.Fatalf("without an agent: %d %s", res.StatusCode, body)
		}
		if g.r1.hits.Load() > r1 && g.r2.hits.Load() > r2 {
			break
		}
	}
	if g.r1.hits.Load() == r1 || g.r2.hits.Load() == r2 {
		g.Errorf("without an agent the replicas got %d and %d of %d requests", g.r1.hits.Load()-r1, g.r2.hits.Load()-r2, most)
	}
	if g.form == "one pool" {
		return
	}
	for _, model := range []string{"a", "it's \"other\" $1"} {
		body, _ := json.Marshal(map[string]any{"messages": strings.Repeat("x", 70000), "model": model})
		if res, text := g.postBody(string(body)); res.Header.Get("X-Replica") != "other" {
			g.Errorf("without an agent model %q went to %s: %d %s", model, res.Header.Get("X-Replica"), res.StatusCode, text)
		}
	}
}

// returns: HAProxy finds an agent that came up by itself.
func (g *rig) returns() {
	g.Helper()
	g.decide(vars{"server": "r1"})
	n := g.agent.asked.Load()
	eventually(g.T, "HAProxy to find the agent", func() bool {
		g.post()
		return g.agent.asked.Load() > n
	})
}

// decided: the decision holds, and the feed tells it.
func (g *rig) decided() {
	for _, name := range []string{"r1", "r2", "r1", "r1", "r2"} {
		g.decide(vars{"server": name, "prio": "-5", "why": "test"})
		res, _ := g.post("X-Session-Id", "s1", "X-Pointsman-Pool", "evil")
		if got := res.Header.Get("X-Replica"); got != name {
			g.Fatalf("served by %s, decided %s", got, name)
		}
		l := g.feed.wait(g.T, "close", g.rid())
		for k, want := range map[string]string{"pool": "llama", "srv": name, "dec": name, "st": "200", "ts": "--", "err": "-", "rc": "0"} {
			if l[k] != want {
				g.Errorf("feed: %s=%s, want %s in %v", k, l[k], want, l)
			}
		}
		if number(l["t0"]) == 0 || number(l["tf"]) < number(l["t0"]) || number(l["B"]) < 100 {
			g.Errorf("feed: %v", l)
		}
		if h := *g.r1.header.Load(); h.Get("X-Pointsman-Pool") != "" || h.Get("X-Session-Id") != "s1" {
			g.Errorf("the replica got %v", h)
		}
		a := g.agent.args()
		if a["method"] != "POST" || a["path"] != "/v1/chat/completions" || !strings.Contains(strings.ToLower(a["hdrs"].(string)), "x-session-id: s1\r\n") ||
			!strings.HasPrefix(a["body"].(string), `{"model":"llama-8b"`) || fmt.Sprint(a["blen"]) != fmt.Sprint(a["bsize"]) {
			g.Errorf("the agent got %v", a)
		}
		if want, _ := map[string]any{"one pool": "llama"}[g.form]; a["pool"] != want {
			g.Errorf("the agent got pool %v, want %v", a["pool"], want)
		}
	}
}

func number(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return n }

// fallbacks: a replica that is down is passed over for the next rank. One that
// HAProxy does not know ends the ranks, and HAProxy balances.
func (g *rig) fallbacks() {
	g.runtime("set server llama/r1 state maint")
	for range 3 {
		for _, v := range []vars{
			{"server": "r1", "fallback1": "r2", "fallback2": "refuses"},
			{"server": "r1", "fallback1": "r1", "fallback2": "r2"},
		} {
			g.decide(v)
			res, _ := g.post()
			if l := g.feed.wait(g.T, "close", g.rid()); res.Header.Get("X-Replica") != "r2" || l["srv"] != "r2" || l["dec"] != "r1" || l["rc"] != "0" {
				g.Errorf("%v: served by %s, feed %v", v, res.Header.Get("X-Replica"), l)
			}
		}
	}
	g.runtime("set server llama/r1 state ready")
	g.runtime("set server llama/r2 state maint")
	g.decide(vars{"server": "r2", "fallback1": "r1"})
	if res, _ := g.post(); res.Header.Get("X-Replica") != "r1" {
		g.Errorf("r2 is down: served by %s, want r1", res.Header.Get("X-Replica"))
	}
	g.runtime("set server llama/r2 state ready")
	g.decide(vars{"server": "nobody", "fallback1": "r1"})
	if res, _ := g.post(); res.StatusCode != 200 {
		g.Errorf("unknown server: %d", res.StatusCode)
	}
}

// runtime sends a command to the runtime API.
func (g *rig) runtime(cmd string) {
	g.Helper()
	c, err := net.Dial("unix", g.api)
	if err != nil {
		g.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintln(c, cmd)
	answer, _ := io.ReadAll(c)
	if s := strings.TrimSpace(string(answer)); s != "" && s != "New server registered." {
		g.Fatalf("%s: %s", cmd, s)
	}
}

// refusedConnection: a replica that refuses costs the request nothing, and the
// feed tells who served.
func (g *rig) refusedConnection() {
	g.decide(vars{"server": "refuses"})
	res, body := g.post()
	if res.StatusCode != 200 {
		g.Fatalf("refused connection: %d %s", res.StatusCode, body)
	}
	l := g.feed.wait(g.T, "close", g.rid())
	if l["dec"] != "refuses" || l["srv"] != res.Header.Get("X-Replica") || l["rc"] == "0" {
		g.Errorf("feed after a refused connection: %v", l)
	}
}

// refusals: the agent's status reaches the client in OpenAI's form.
func (g *rig) refusals() {
	for _, c := range []struct {
		v                           vars
		status                      int
		message, kind, param, after string
	}{
		{vars{"status": 404, "reason": `no \"x\" here`}, 404, `no "x" here`, "invalid_request_error", "model", ""},
		{vars{"status": 404}, 404, "The model does not exist.", "invalid_request_error", "model", ""},
		{vars{"status": 429, "reason": "busy", "retry_after": 7}, 429, "busy", "rate_limit_error", "", "7"},
		{vars{"status": "429"}, 429, "Too many requests.", "rate_limit_error", "", "1"},
		{vars{"status": 503, "reason": "none up", "retry_after": "3"}, 503, "none up", "server_error", "", "3"},
		{vars{"status": 503}, 503, "No replica is available.", "server_error", "", "1"},
	} {
		hits := g.r1.hits.Load() + g.r2.hits.Load()
		g.decide(c.v)
		res, body := g.post()
		var e struct {
			Error struct{ Message, Type, Param, Code string }
		}
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			g.Errorf("%v: %v in %s", c.v, err, body)
		}
		if res.StatusCode != c.status || e.Error.Message != c.message || e.Error.Type != c.kind || e.Error.Param != c.param || e.Error.Code == "" {
			g.Errorf("%v: %d %s", c.v, res.StatusCode, body)
		}
		if ct := res.Header.Get("Content-Type"); ct != "application/json" {
			g.Errorf("%v: content type %s", c.v, ct)
		}
		if got := res.Header.Get("Retry-After"); got != c.after {
			g.Errorf("%v: Retry-After %q, want %q", c.v, got, c.after)
		}
		if l := g.feed.wait(g.T, "close", g.rid()); l["st"] != fmt.Sprint(c.status) || l["srv"] != "<NOSRV>" {
			g.Errorf("feed of a refusal: %v", l)
		}
		if g.r1.hits.Load()+g.r2.hits.Load() != hits {
			g.Errorf("%v reached a replica", c.v)
		}
	}
}

// notAsked: only a POST with a body is worth a question.
func (g *rig) notAsked() {
	g.decide(vars{"server": "r2"})
	n := g.agent.asked.Load()
	for _, method := range []string{"GET", "HEAD", "DELETE", "POST"} {
		res, err := g.do(g.Context(), method, "/v1/models", "")
		if err != nil {
			g.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 200 || res.Header.Get("X-Replica") == "" {
			g.Errorf("%s: %d by %q", method, res.StatusCode, res.Header.Get("X-Replica"))
		}
	}
	if g.form != "whole" {
		res, err := g.do(g.Context(), "POST", "/login", "a=b")
		if err != nil {
			g.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if string(text) != "the operator's own site" {
			g.Errorf("a path of the operator's: %s", text)
		}
	}
	if g.agent.asked.Load() != n {
		g.Error("the agent was asked about a request without a body, or one that is not ours")
	}
}

// stream starts a stream on r2, waits for the replica to have it, and returns
// its id with a channel that gets the response.
func (g *rig) stream(ctx context.Context) (string, chan *http.Response) {
	g.decide(vars{"server": "r2"})
	n, hits := g.agent.asked.Load(), g.r2.hits.Load()
	got := make(chan *http.Response, 1)
	go func() {
		if res, err := g.do(ctx, "POST", "/v1/stream", `{"model":"llama-8b","stream":true}`); err == nil {
			got <- res
		}
	}()
	eventually(g.T, "the stream to reach its replica", func() bool {
		return g.agent.asked.Load() > n && g.r2.hits.Load() > hits
	})
	return g.rid(), got
}

// firstByte: t_first is the time of the body's first byte, chunks are not held
// back, and from 3.2 on the feed tells the connection and the first byte while
// the request goes on.
func (g *rig) firstByte() {
	rid, got := g.stream(g.Context())
	live := g.ver.AtLeast(3, 2)
	if live {
		if l := g.feed.wait(g.T, "conn", rid); l["srv"] != "r2" || l["pool"] != "llama" || l["dec"] != "r2" || l["tf"] != "-" {
			g.Errorf("feed at the connection: %v", l)
		}
	}
	g.r2.write <- "data: 0\n"
	wrote := <-g.r2.wrote
	res := <-got
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for i := range 20 {
		s, err := lines.ReadString('\n')
		if err != nil || s != fmt.Sprintf("data: %d\n", i) {
			g.Fatalf("chunk %d: %q %v", i, s, err)
		}
		if i == 0 {
			read := time.Now()
			defer func() {
				l := g.feed.wait(g.T, "close", rid)
				tf := time.UnixMicro(number(l["tf"]))
				if tf.Before(wrote.Truncate(time.Microsecond)) || tf.After(read) {
					g.Errorf("first byte at %v, not between %v, when it was sent, and %v, when it came", tf, wrote, read)
				}
			}()
			if live {
				first := g.feed.wait(g.T, "first", rid)
				if number(first["tf"]) < wrote.UnixMicro() || first["srv"] != "r2" || first["st"] != "200" {
					g.Errorf("feed at the first byte: %v", first)
				}
			}
		}
		if len(g.feed.of("close", rid)) > 0 {
			g.Error("a close line while the stream goes on")
		}
		if i < 19 {
			g.r2.write <- fmt.Sprintf("data: %d\n", i+1)
		}
	}
	g.r2.write <- ""
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		g.Errorf("after the last chunk: %q %v", rest, err)
	}
}

// abortedStream: a client that leaves in mid-stream frees its replica.
func (g *rig) abortedStream() {
	ctx, cancel := context.WithCancel(g.Context())
	rid, got := g.stream(ctx)
	g.r2.write <- "data: 0\n"
	(<-got).Body.Read(make([]byte, 8))
	cancel()
	g.left("in mid-stream")
	if l := g.feed.wait(g.T, "close", rid); l["ts"] != "CD" || l["srv"] != "r2" || l["st"] != "200" || number(l["tf"]) == 0 {
		g.Errorf("feed after an abort in mid-stream: %v", l)
	}
}

// abortedBeforeFirstByte: so does one that leaves during the prefill.
func (g *rig) abortedBeforeFirstByte() {
	ctx, cancel := context.WithCancel(g.Context())
	rid, _ := g.stream(ctx)
	cancel()
	g.left("before the first byte")
	if l := g.feed.wait(g.T, "close", rid); l["ts"][0] != 'C' || l["srv"] != "r2" || l["tf"] != "-" {
		g.Errorf("feed after an abort before the first byte: %v", l)
	}
}

func (g *rig) left(when string) {
	g.Helper()
	select {
	case <-g.r2.gone:
	case <-time.After(10 * time.Second):
		g.Fatalf("the client left %s and the replica was not told", when)
	}
}

// abortedDecision: a client that leaves while the agent thinks is not served.
func (g *rig) abortedDecision() {
	hold := make(chan struct{})
	hits := g.r1.hits.Load() + g.r2.hits.Load()
	n := g.agent.asked.Load()
	g.agent.answers(func(vars) vars { <-hold; return vars{"server": "r1", "pool": "llama"} })
	ctx, cancel := context.WithCancel(g.Context())
	go g.do(ctx, "POST", "/v1/chat/completions", `{"model":"llama-8b"}`)
	eventually(g.T, "the question", func() bool { return g.agent.asked.Load() > n })
	rid := g.rid()
	cancel()
	l := g.feed.wait(g.T, "close", rid)
	close(hold)
	if l["ts"][0] != 'C' && l["ts"] != "PR" || l["st"] == "200" {
		g.Errorf("feed after an abort before the decision: %v", l)
	}
	// Where the decision timed out first, HAProxy may have begun to connect
	// before it saw that the client had left; then it cancels.
	if l["tc"] == "-1" && g.r1.hits.Load()+g.r2.hits.Load() != hits {
		g.Error("a client that left before the decision reached a replica")
	}
}

// slowAgent: a decision that is late is not waited for.
func (g *rig) slowAgent() {
	hold := make(chan struct{})
	g.agent.answers(func(vars) vars { <-hold; return nil })
	res, body := g.post()
	close(hold)
	if l := g.feed.wait(g.T, "close", g.rid()); res.StatusCode != 200 || l["err"] != "1" {
		g.Errorf("slow agent: %d %s, feed %v", res.StatusCode, body, l)
	}
}

// waitsNoMore: requests stop to wait for an agent that does not answer. A few
// at once prove nothing: each of HAProxy's threads has its own view of the
// agent. Of 20 in a row at most slow may still wait.
func (g *rig) waitsNoMore(slow int) {
	g.Helper()
	eventually(g.T, "requests to go on without the agent", func() bool {
		waited := 0
		for range 20 {
			start := time.Now()
			if res, body := g.post(); res.StatusCode != 200 {
				g.Fatalf("without an agent: %d %s", res.StatusCode, body)
			}
			// The replica answers at once, so this long is the processing timeout.
			if time.Since(start) >= 300*time.Millisecond {
				waited++
			}
		}
		return waited <= slow
	})
}

// frozen: an agent that is stopped by a signal, its sockets open, is no worse
// than a dead one.
func (g *rig) frozen() {
	thaw := g.agent.freeze()
	g.waitsNoMore(0)
	thaw()
}

// killed: an agent that dies under load fails no request.
func (g *rig) killed() {
	g.decide(vars{"server": "r1"})
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 8 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, err := g.do(g.Context(), "POST", "/v1/chat/completions", `{"model":"llama-8b"}`)
				if err != nil {
					g.Error(err)
					return
				}
				res.Body.Close()
				if res.StatusCode != 200 {
					g.Errorf("an agent that died under load: %d", res.StatusCode)
				}
			}
		})
	}
	n := g.agent.asked.Load()
	eventually(g.T, "load", func() bool { return g.agent.asked.Load() > n+50 })
	g.agent.stop()
	for range 30 {
		g.post()
	}
	close(stop)
	load.Wait()
	slow := 0
	if !g.ver.AtLeast(3, 1) {
		// The older SPOE engine can be left with a connection in limbo, when
		// it was being refused while the server was taken out. Its thread then
		// makes some requests wait until the agent is back.
		slow = 15
	}
	g.waitsNoMore(slow)
}

// sizes: no size of headers and body makes a frame that is too large.
func (g *rig) sizes() {
	g.decide(vars{"server": "r1"})
	limit := templates.LimitsOf(256 << 10)
	for _, head := range []int{0, 8 << 10, 40 << 10, 200 << 10} {
		for _, body := range []int{1, 10 << 10, 200 << 10, limit.MaxBody, 256 << 10, 2 << 20} {
			var h []string
			for i := range head / 4000 {
				h = append(h, fmt.Sprintf("X-Long-%d", i), strings.Repeat("h", 3980))
			}
			n := g.agent.asked.Load()
			res, text := g.postBody(strings.Repeat("b", body), h...)
			if res.StatusCode != 200 || res.Header.Get("X-Bytes") != fmt.Sprint(body) {
				g.Errorf("headers %d, body %d: %d %s, the replica got %s", head, body, res.StatusCode, text, res.Header.Get("X-Bytes"))
				continue
			}
			if g.agent.asked.Load() != n+1 {
				g.Errorf("headers %d, body %d: the agent was not asked", head, body)
				continue
			}
			a := g.agent.args()
			got := len(a["body"].(string))
			if got > limit.MaxBody || len(a["hdrs"].(string)) > limit.MaxHeaders || fmt.Sprint(a["bsize"]) != fmt.Sprint(body) ||
				head <= 8<<10 && got < min(body, limit.MaxBody-head-2048) {
				g.Errorf("headers %d, body %d: the agent got %d and %d bytes, blen %v, bsize %v", head, body, len(a["hdrs"].(string)), got, a["blen"], a["bsize"])
			}
			if l := g.feed.wait(g.T, "close", g.rid()); l["err"] != "-" || l["srv"] != "r1" {
				g.Errorf("headers %d, body %d: feed %v", head, body, l)
			}
		}
	}
}

// shapes: chunked bodies, h2c and Expect: 100-continue are asked about like any
// other.
func (g *rig) shapes() {
	g.decide(vars{"server": "r2"})
	const size = 300 << 10
	chunked, _ := http.NewRequestWithContext(g.Context(), "POST", g.url+"/v1/embeddings", io.MultiReader(strings.NewReader(strings.Repeat("c", size))))
	expect, _ := http.NewRequestWithContext(g.Context(), "POST", g.url+"/v1/embeddings", strings.NewReader(strings.Repeat("e", size)))
	expect.Header.Set("Expect", "100-continue")
	two, _ := http.NewRequestWithContext(g.Context(), "POST", g.url+"/v1/embeddings", strings.NewReader(strings.Repeat("2", size)))
	two.Header.Set("X-Long", strings.Repeat("h", 8000))
	h2c := new(http.Protocols)
	h2c.SetUnencryptedHTTP2(true)
	for name, c := range map[string]struct {
		q  *http.Request
		tr *http.Transport
	}{
		"chunked": {chunked, &http.Transport{DisableKeepAlives: true}},
		"expect":  {expect, &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: 10 * time.Second}},
		"h2c":     {two, &http.Transport{Protocols: h2c}},
	} {
		n := g.agent.asked.Load()
		res, err := c.tr.RoundTrip(c.q)
		if err != nil {
			g.Errorf("%s: %v", name, err)
			continue
		}
		res.Body.Close()
		c.tr.CloseIdleConnections()
		if res.StatusCode != 200 || res.Header.Get("X-Bytes") != fmt.Sprint(size) || res.Header.Get("X-Replica") != "r2" || g.agent.asked.Load() != n+1 {
			g.Errorf("%s: %d by %s, which got %s bytes; %d questions", name, res.StatusCode, res.Header.Get("X-Replica"), res.Header.Get("X-Bytes"), g.agent.asked.Load()-n)
		}
	}
}

// runtimeServer: a server added at run time can be decided for.
func (g *rig) runtimeServer() {
	g.runtime("add server llama/late " + g.r2.addr())
	g.runtime("enable server llama/late")
	g.decide(vars{"server": "late"})
	g.post()
	if l := g.feed.wait(g.T, "close", g.rid()); l["srv"] != "late" {
		g.Errorf("feed of a server added at run time: %v", l)
	}
}

// oneCloseLineEach: no request has two close lines.
func (g *rig) oneCloseLineEach() {
	seen := map[string]int{}
	for _, l := range g.feed.of("close", "") {
		if l["rid"] != "-" {
			seen[l["rid"]]++
		}
	}
	for rid, n := range seen {
		if n != 1 {
			g.Errorf("%d close lines of %s", n, rid)
		}
	}
	if int64(len(seen)) < g.agent.asked.Load() {
		g.Errorf("%d requests in the feed, the agent was asked %d times", len(seen), g.agent.asked.Load())
	}
}

// ownLog: the operator's own log has each request once, in the usual format.
func (g *rig) ownLog() {
	if g.form == "whole" {
		return // it goes to syslog
	}
	var posts int
	for line := range strings.Lines(g.proc.Log()) {
		if strings.Contains(line, "<BADREQ>") {
			g.Errorf("own log: %s", line)
		}
		if strings.Contains(line, ` llama/r`) && strings.Contains(line, `"POST /v1/chat/completions HTTP/1.1"`) {
			posts++
		}
	}
	want := 0
	for _, l := range g.feed.of("close", "") {
		if l["pool"] == "llama" && strings.HasPrefix(l["srv"], "r") && l["rid"] != "-" {
			want++
		}
	}
	// Streams and other paths are in the feed as well.
	if posts == 0 || posts > want {
		g.Errorf("own log has %d chat requests, the feed %d", posts, want)
	}
}
