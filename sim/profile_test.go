package sim

import (
	"math"
	"testing"
	"time"
)

func TestProfiles(t *testing.T) {
	for name := range profiles {
		p, err := ProfileByName(name)
		if err != nil || p.Name != name {
			t.Errorf("%s: %v %v", name, p.Name, err)
		}
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
		half := p.Scale(0.5)
		if half.Base != 2*p.Base || half.PrefillRate != p.PrefillRate/2 || half.ContextRead != 2*p.ContextRead {
			t.Errorf("half of %+v is %+v", p, half)
		}
	}
	_, err := ProfileByName("7b")
	if err == nil || err.Error() != `profile: unknown "7b"; want 70b or 8b` {
		t.Error(err)
	}
	for _, broken := range []func(*Profile){
		func(p *Profile) { p.PrefillRate = math.NaN() },
		func(p *Profile) { p.Chunk = p.MaxRunning },
		func(p *Profile) { p.MaxRunning = 0 },
		func(p *Profile) { p.Base = -1 },
		func(p *Profile) { p.AttentionDepth = 0 },
	} {
		p := Profile8B
		broken(&p)
		if _, err := NewEngine(EngineOptions{Profile: p, BlockSize: 16, CacheTokens: 1600}); err == nil {
			t.Errorf("accepted %+v", p)
		}
	}
}

func TestParseProfile(t *testing.T) {
	p, err := ParseProfile("70b:prefill_rate=8000,chunk=2048,base_ms=1.5,context_read_ns=10,attention_depth=1e4,max_running=64")
	want := Profile{
		Name:        "70b:prefill_rate=8000,chunk=2048,base_ms=1.5,context_read_ns=10,attention_depth=1e4,max_running=64",
		PrefillRate: 8000, Chunk: 2048, Base: 1500 * time.Microsecond, ContextRead: 10, AttentionDepth: 1e4, MaxRunning: 64, KVBytes: 320 << 10,
	}
	if err != nil || p != want {
		t.Errorf("%+v %v", p, err)
	}
	if p, err := ParseProfile("8b"); err != nil || p != Profile8B {
		t.Errorf("%+v %v", p, err)
	}
	for spec, want := range map[string]string{
		"7b":            `profile: unknown "7b"; want 70b or 8b`,
		"8b:chunk":      `profile: "chunk", want a number for one of attention_depth, base_ms, chunk, context_read_ns, kv_bytes, max_running, prefill_rate, as chunk=2048`,
		"8b:speed=1":    `profile: "speed=1", want a number for one of attention_depth, base_ms, chunk, context_read_ns, kv_bytes, max_running, prefill_rate, as chunk=2048`,
		"8b:chunk=256":  `profile "8b:chunk=256": a chunk of 256 tokens, want more than the 256 running sequences, which need one each`,
		"8b:base_ms=-1": `profile "8b:base_ms=-1": negative step time`,
	} {
		if _, err := ParseProfile(spec); err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", spec, err, want)
		}
	}
}
