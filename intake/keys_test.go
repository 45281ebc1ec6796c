package intake

import (
	"slices"
	"testing"

	"pointsman/decider"
	"pointsman/decider/queue"
)

// keys are the block keys of a prompt with a salt and of a tenant, by an agent
// with that secret.
func keys(secret, salt, tenant string, separate bool) []uint64 {
	in := newIntake()
	in.Decider().Secret = []byte(secret)
	pc := pool("llama", "m")
	pc.Admission = &decider.Admission{Bands: []queue.Band{{Name: "a"}}}
	in.Apply(Config{Pools: []decider.PoolConfig{pc}, Classes: map[string]Classes{"llama": {
		Tenants: []TenantSource{NewTenantSource("x-tenant")}, SeparatePrefixes: separate,
	}}})
	b := body("m", 4000)
	b = append([]byte(`{"cache_salt":"`+salt+`",`), b[1:]...)
	var r Request
	in.Read(&r, Input{Path: []byte(chat), Headers: []byte("x-tenant: " + tenant + "\r\n"), Body: b, BodySize: len(b)})
	return slices.Clone(r.Blocks)
}

// The keys of a prompt are known to nobody without the secret, and a salt or the
// tenant separates equal prompts.
func TestKeysOfPrompts(t *testing.T) {
	mine := keys("secret", "", "ann", false)
	if len(mine) < 3 {
		t.Fatalf("%d keys", len(mine))
	}
	for why, c := range map[string]struct {
		keys []uint64
		same bool
	}{
		"the same":         {keys("secret", "", "ann", false), true},
		"another secret":   {keys("other", "", "ann", false), false},
		"no secret":        {keys("", "", "ann", false), false},
		"a salt":           {keys("secret", "s", "ann", false), false},
		"another tenant":   {keys("secret", "", "bob", false), true},
		"separate tenants": {keys("secret", "", "ann", true), false},
	} {
		if slices.Equal(c.keys, mine) != c.same || !c.same && c.keys[len(mine)-1] == mine[len(mine)-1] {
			t.Errorf("%s: %x and %x", why, c.keys, mine)
		}
	}
	if ann, bob := keys("secret", "", "ann", true), keys("secret", "", "bob", true); slices.Equal(ann, bob) {
		t.Error("separate tenants share keys")
	}
}
