package intake

import (
	"strings"
	"testing"

	"pointsman/decider"
	"pointsman/decider/queue"
)

// What a client claims and does not send moves nobody's requests.
func TestClaimedLengths(t *testing.T) {
	for _, size := range []int{1 << 40, 1 << 62} {
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

// Text is charged whatever its encoding, and so are bodies whose form hides it.
func TestHiddenBodies(t *testing.T) {
	in := newIntake()
	in.Apply(Config{DefaultPool: "llama", Pools: []decider.PoolConfig{pool("llama", "m")}})
	in.Decider().Pool("llama").Engine("r0").ContextTokens(32_768)
	plain := string(body("m", 36_000))
	wide := strings.Join(strings.Split(plain, ""), "\x00")
	for why, b := range map[string]string{
		"plain": plain, "a byte order mark": "\xef\xbb\xbf" + plain, "UTF-16": wide, "UTF-32": strings.ReplaceAll(wide, "\x00", "\x00\x00\x00"),
		"compressed": "\x1f\x8b" + plain,
	} {
		for _, sent := range []int{len(b), len(b) / 2} {
			var r Request
			in.Read(&r, Input{Path: []byte(chat), Body: []byte(b[:sent]), BodySize: len(b)})
			if r.Input < 8900 || r.Input > 32_768 {
				t.Errorf("%s, %d of %d bytes: %d tokens", why, sent, len(b), r.Input)
			}
		}
	}
}

// An image is priced by its kind, however much of it was seen.
func TestPriceOfMedia(t *testing.T) {
	in := newIntake()
	in.Apply(Config{Pools: []decider.PoolConfig{pool("llama", "m")}})
	for _, size := range []int{80_000, 3_000_000} {
		b := []byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"what is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", size) + `"}}]}]}`)
		var r Request
		in.Read(&r, Input{Path: []byte(chat), Body: b[:min(len(b), 128<<10)], BodySize: len(b)})
		if r.Input < 765 || r.Input > 780 {
			t.Errorf("an image of %d bytes: %d tokens", size, r.Input)
		}
	}
}

// A body that names two models is refused where that is asked for, and its
// priority is for the proxy's queues only where that is.
func TestAmbiguousBodies(t *testing.T) {
	in := newIntake()
	c := Config{Pools: []decider.PoolConfig{pool("llama", "m"), pool("other", "o")}}
	b := []byte(`{"model":"o","priority":3,"mod\u0065l":"m"}`)
	read := func() (r Request, ok bool) {
		in.Apply(c)
		ok = in.Read(&r, Input{Path: []byte(chat), Body: b, BodySize: len(b)})
		return r, ok
	}
	if r, ok := read(); !ok || r.Model != "m" || r.Queued || r.Priority != 3 {
		t.Errorf("by default: %v %+v", ok, r.Request)
	}
	c.BodyPriority = true
	if r, _ := read(); !r.Queued {
		t.Error("the priority is not for the queues")
	}
	c.OneModel = true
	if r, ok := read(); ok || r.Decision.Status != 400 || r.Decision.Why != "two_models" {
		t.Errorf("refused: %v %+v", ok, r.Decision)
	}
	b = []byte("{\x00\"\x00m\x00o\x00d\x00e\x00l\x00\"\x00:\x00\"\x00o\x00\"\x00}\x00")
	if r, ok := read(); ok || r.Decision.Status != 400 || r.Decision.Why != "unreadable" {
		t.Errorf("UTF-16: %v %+v", ok, r.Decision)
	}
	b = []byte(`{"model":"m","model":"m"}`)
	if r, ok := read(); !ok {
		t.Errorf("twice the same: %+v", r.Decision)
	}
}
