package policy

import (
	"testing"

	"pointsman/decider"
	"pointsman/decider/decidertest"
)

// A prompt that is cached on one replica goes there, and a thousand of them at
// once still spread.
func TestKVAwareSendsPromptsWhereTheyAre(t *testing.T) {
	policy := must(NewKVAware(decider.TokenDefaults))
	if policy.Tokens().BlockTokens != 16 {
		t.Fatalf("%d tokens in a block", policy.Tokens().BlockTokens)
	}
	p := decidertest.New(policy, 4)
	keys := make([]uint64, 200)
	var changes []decider.BlockChange
	for i := range keys {
		keys[i] = uint64(1000 + i)
		changes = append(changes, decider.BlockChange{Key: keys[i], Stored: true})
	}
	tokenized := func(r *decider.Request) { r.Tokenized(keys, 16*len(keys)+1) }
	p.Engine("r2").ChangeBlocks(p.Engine("r2").FollowBlocks(), changes)
	for range 20 {
		d, id := p.Send(tokenized)
		if d.Server != "r2" {
			t.Fatalf("a prompt that r2 has went to %s", d.Server)
		}
		p.End(id, d.Server)
	}
	counts := p.Burst(1000, tokenized)
	for _, r := range []string{"r0", "r1", "r2", "r3"} {
		if counts[r] < 150 || counts[r] > 400 { // only r2 need not compute it first
			t.Errorf("a thousand at once: %v", counts)
			break
		}
	}
}

func TestTokenOptionsAreChecked(t *testing.T) {
	for option, change := range map[string]func(*decider.TokenOptions){
		"block_tokens":   func(o *decider.TokenOptions) { o.BlockTokens = 0 },
		"on_untokenized": func(o *decider.TokenOptions) { o.OnUntokenized = "shrug" },
		"timeout":        func(o *decider.TokenOptions) { o.Timeout = 0 },
	} {
		o := decider.TokenDefaults
		change(&o)
		if _, err := NewKVAware(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
		wantFault(t, o, option)
	}
}
