package sim

import (
	"fmt"
	"sort"
	"strings"
	"time"
)

// Profile is the speed of one engine: a model on its hardware. A step takes
//
//	max(Base, u/PrefillRate) + attention
//
// where u is the number of prompt tokens computed in the step. Attention adds
// position/AttentionDepth of its linear cost to each prompt token, and
// ContextRead for each token of context that a decoding sequence reads.
type Profile struct {
	Name string
	// PrefillRate is the speed of prompt tokens at position 0, in tokens/s.
	PrefillRate float64
	// Chunk is the token budget of a step: one token for each decoding sequence,
	// the rest for prompts, first come, first served.
	Chunk int
	// Base is the shortest time of a step: reading the weights once.
	Base time.Duration
	// ContextRead is the time to read one token of KV cache, in nanoseconds.
	ContextRead float64
	// AttentionDepth is the position at which attention doubles the cost of a
	// prompt token.
	AttentionDepth float64
	// MaxRunning bounds the sequences in prefill or decode.
	MaxRunning int
	// KVBytes is the size of one token of KV cache, in bytes.
	KVBytes int
}

// Profile70B is a model of 70 billion parameters in bf16, grouped-query
// attention over 80 layers, on four 80 GB accelerators in tensor parallel.
//
// 10,000 prompt tokens/s, 1,024 tokens a step, 20 ms and 34 ns are the figures
// that the published policy comparison used. They agree with the hardware:
// 140 GFLOP a token at 35 % of 4 × 990 TFLOP/s; 140 GB of weights, and 320 KiB
// of KV a token, at 72 % of 4 × 3.35 TB/s. The depth follows from the shape:
// attention costs 4 × 8,192 × 80 FLOP for each token before, so at the
// efficiency of the linear layers it would equal them at 140e9 / 2.6e6 = 53,000
// tokens. At 84 % of that efficiency the model meets the published times of
// round robin, least requests and power of two within 4 % (root mean square).
var Profile70B = Profile{
	Name: "70b", PrefillRate: 10_000, Chunk: 1024, Base: 20 * time.Millisecond,
	ContextRead: 34, AttentionDepth: 44_500, MaxRunning: 256, KVBytes: 320 << 10,
}

// Profile8B is a model of 8 billion parameters in bf16, 32 layers of width
// 4,096 with 8 KV heads, on one such accelerator at the same efficiencies:
// 16 GFLOP a token gives 21,600 tokens/s; 16 GB of weights 6.7 ms and some
// launch overhead; 128 KiB of KV a token 54 ns; 4 × 4,096 × 32 FLOP for each
// token before, a depth of 25,600, likewise. The chunk is vLLM's default for servers.
var Profile8B = Profile{
	Name: "8b", PrefillRate: 21_600, Chunk: 2048, Base: 8 * time.Millisecond,
	ContextRead: 54, AttentionDepth: 25_600, MaxRunning: 256, KVBytes: 128 << 10,
}

var profiles = map[string]Profile{Profile70B.Name: Profile70B, Profile8B.Name: Profile8B}

// ProfileByName returns a built-in profile; the error names the valid ones.
func ProfileByName(name string) (Profile, error) {
	if p, ok := profiles[name]; ok {
		return p, nil
	}
	names := make([]string, 0, len(profiles))
	for n := range profiles {
		names = append(names, n)
	}
	sort.Strings(names)
	return Profile{}, fmt.Errorf("profile: unknown %q; want %s", name, strings.Join(names, " or "))
}

// Scale returns the profile with factor times its speed: 0.5 is half as fast.
func (p Profile) Scale(factor float64) Profile {
	p.PrefillRate *= factor
	p.Base = time.Duration(float64(p.Base) / factor)
	p.ContextRead /= factor
	return p
}

// Validate returns an error that says why the profile is unusable.
func (p Profile) Validate() error {
	switch {
	case !(p.PrefillRate > 0):
		return fmt.Errorf("profile %q: prefill rate %v, want tokens/s above 0", p.Name, p.PrefillRate)
	case p.MaxRunning < 1:
		return fmt.Errorf("profile %q: %d running sequences, want at least 1", p.Name, p.MaxRunning)
	case p.Chunk <= p.MaxRunning:
		return fmt.Errorf("profile %q: a chunk of %d tokens, want more than the %d running sequences, which need one each", p.Name, p.Chunk, p.MaxRunning)
	case p.Base < 0 || !(p.ContextRead >= 0):
		return fmt.Errorf("profile %q: negative step time", p.Name)
	case !(p.AttentionDepth > 0):
		return fmt.Errorf("profile %q: attention depth %v, want tokens above 0 (+Inf for none)", p.Name, p.AttentionDepth)
	}
	return nil
}

// prefill returns the linear and the attention time of prompt tokens from..to, in
// nanoseconds.
func (p *Profile) prefill(from, to int) (linear, attention float64) {
	linear = float64(to-from) * 1e9 / p.PrefillRate
	return linear, linear * (float64(from+to) / 2 / p.AttentionDepth)
}
