package prompt

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"pointsman/keyed"
	"pointsman/test/inject"
)

// TestNobodyForgesKeys: two prompts that collide in XXH64 under many seeds, which a secret
// seed does not prevent, have different keys under every secret.
func TestNobodyForgesKeys(t *testing.T) {
	a, b, ok := inject.Colliding()
	if !ok {
		t.Fatal("no such texts")
	}
	const seeds = 1000
	same := 0
	for seed := range uint64(seeds) {
		x, y := xxhash.NewWithSeed(seed), xxhash.NewWithSeed(seed)
		x.WriteString(a)
		y.WriteString(b)
		if x.Sum64() == y.Sum64() {
			same++
		}
	}
	if same < seeds/20 {
		t.Fatalf("the texts collide under %d of %d seeds", same, seeds)
	}
	t.Logf("XXH64 does not tell them apart under %d of %d seeds", same, seeds)
	for pad := range 32 { // wherever the text lies in the stream
		for secret := range 30 {
			k := keyed.New([]byte{byte(secret)})
			keys := func(text string) string {
				body := Body{Key: k}
				body.Scan(fmt.Appendf(nil, `{"messages":[{"role":"user","content":"%s%s%s"}]}`, strings.Repeat(" ", pad), text, strings.Repeat("x", 256)), ChatCompletions, 1<<20)
				return fmt.Sprint(body.Blocks(nil, Seed(k, nil, nil, nil), 128))
			}
			if got := keys(a); got == keys(b) {
				t.Fatalf("at %d, secret %d: both have the keys %s", pad, secret, got)
			}
		}
	}
	if a == b {
		t.Error("the same text")
	}
}
