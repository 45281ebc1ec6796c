package intake

import (
	"strings"
	"testing"

	"pointsman/decider"
	"pointsman/decider/queue"
)

// What a client claims and does not send moves nobody's requests.
func TestClaimedLengths(t *testing.T) {
	for _, size := range []int{1 << 40, 1 << 62, -1 << 63} {
		in := newIntake()
		in.Apply(Config{Pools: []decider.PoolConfig{pool("llama", "m")}})
		p := in.Decider().Pool("llama")
		p.Engine("r0").ContextTokens(32_768)
		b := []byte(strings.TrimSuffix(string(body("m", 8000)), `"}]}`))
		var r Request
		in.Handle(&r, Input{ID: []byte("a"), Path: []byte(chat), Body: b, BodySize: size}, nil)
		if seen := 8000/4 + 1; r.Input != seen || r.TextBytes > 8100 || r.Bytes > 1<<40 {
			t.Errorf("a body of %d bytes: %d tokens, %d bytes of text, %d bytes; want what was seen, %d tokens", size, r.Input, r.TextBytes, r.Bytes, seen)
		}
		if s := p.Status(); s.PromptTokens > 3000 {
			t.Errorf("a body of %d bytes: %d prompt tokens are counted", size, s.PromptTokens)
		}
	}
}

// Requests that ask for absurdly long answers do not fill the pool for others.
func TestClaimedOutput(t *testing.T) {
	in := newIntake()
	pc := pool("llama", "m")
	pc.Admission = &decider.Admission{Hold: true, Bands: []queue.Band{{Name: "a"}}}
	in.Apply(Config{Pools: []decider.PoolConfig{pc}})
	p := in.Decider().Pool("llama")
	var w waiter
	for i, claim := range []string{`"max_tokens":2000000000`, `"max_completion_tokens":2147483647,"n":16384`, `"max_tokens":7`} {
		var r Request
		b := []byte(`{"model":"m","stream":true,` + claim + `,"messages":[{"role":"user","content":"hello"}]}`)
		if in.Handle(&r, Input{ID: []byte{byte(i)}, Path: []byte(chat), Body: b, BodySize: len(b)}, &w) {
			t.Fatalf("request %d is held: the pool seems full", i)
		}
		p.FirstToken(r.ID, []byte("r0"))
	}
}
