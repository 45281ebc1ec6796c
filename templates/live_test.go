package templates_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

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

// decided: the decision holds, and the feed reports it.
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
		if n := len(g.feed.of("first", g.rid())); n > 0 {
			g.Errorf("%d lines before the end of an answer in one piece by the replica of the decision", n)
		}
		if h := *g.r1.header.Load(); h.Get("X-Pointsman-Pool") != "" || h.Get("X-Session-Id") != "s1" {
			g.Errorf("the replica got %v", h)
		}
		a := g.agent.args()
		if a["proc"] == nil || a["path"] != "/v1/chat/completions" || !strings.Contains(strings.ToLower(a["hdrs"].(string)), "x-session-id: s1\r\n") ||
			!strings.HasPrefix(a["body"].(string), `{"model":"llama-8b"`) || fmt.Sprint(a["blen"]) != fmt.Sprint(a["bsize"]) {
			g.Errorf("the agent got %v", a)
		}
		if want := map[string]any{"one pool": "llama"}[g.form]; a["pool"] != want {
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

// refusedConnection: a replica that refuses costs the request nothing, and the feed
// reports who served.
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
	// From 3.2 on the agent learns at once that another replica has the request.
	var live int
	for _, f := range g.feed.of("first", g.rid()) {
		if live++; f["tf"] != "-" || f["srv"] != l["srv"] || f["pool"] != "llama" {
			g.Errorf("feed as another replica answers: %v", f)
		}
	}
	if want := map[bool]int{true: 1}[g.ver.AtLeast(3, 2)]; live != want {
		g.Errorf("%d lines as another replica answers, want %d", live, want)
	}
}

// refusedMessages: the form of Anthropic's API.
func (g *rig) refusedMessages(status int, message string) {
	g.Helper()
	res, err := g.do(g.Context(), "POST", "/v1/messages", `{"model":"llama-8b","messages":[]}`)
	if err != nil {
		g.Fatal(err)
	}
	defer res.Body.Close()
	var e struct {
		Type  string
		Error struct{ Message, Type string }
	}
	if err := json.NewDecoder(res.Body).Decode(&e); err != nil || res.StatusCode != status || e.Type != "error" || e.Error.Message != message || e.Error.Type == "" {
		g.Errorf("Messages: %d %v %+v", res.StatusCode, err, e)
	}
	g.feed.wait(g.T, "close", g.rid())
}

// refusals: the agent's status reaches the client in OpenAI's form.
func (g *rig) refusals() {
	for _, c := range []struct {
		v                           vars
		status                      int
		message, kind, param, after string
	}{
		{vars{"status": 404, "reason": `no \"x\" here`}, 404, `no "x" here`, "invalid_request_error", "model", ""},
		{vars{"status": 400}, 400, "The request cannot be read.", "invalid_request_error", "", ""},
		{vars{"status": 404}, 404, "The model does not exist.", "invalid_request_error", "model", ""},
		{vars{"status": 429, "reason": "busy", "retry_after": 7}, 429, "busy", "rate_limit_error", "", "7"},
		{vars{"status": "429"}, 429, "Too many requests.", "rate_limit_error", "", "1"},
		{vars{"status": 503, "reason": "none up", "retry_after": "3"}, 503, "none up", "server_error", "", "3"},
		{vars{"status": 503}, 503, "No replica is available.", "server_error", "", "1"},
	} {
		hits := g.r1.hits.Load() + g.r2.hits.Load()
		g.decide(c.v)
		g.refusedMessages(c.status, c.message)
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
