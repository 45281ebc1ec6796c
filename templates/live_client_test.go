package templates_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"pointsman/templates"
)

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
// back, and from 3.2 on the feed reports the first byte while the request goes on.
func (g *rig) firstByte() {
	rid, got := g.stream(g.Context())
	live := g.ver.AtLeast(3, 2)
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
		if len(g.feed.of("close", rid)) > 0 || len(g.feed.of("first", rid)) > 1 {
			g.Error("a close line while the stream goes on, or two at its first byte")
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
		g.Fatalf("the client left %s and the replica did not notice", when)
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
