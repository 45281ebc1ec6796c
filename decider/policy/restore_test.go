package policy

import (
	"bytes"
	"testing"

	"pointsman/decider"
	"pointsman/decider/decidertest"
)

// A policy that records what each replica was sent has its record again after a restart.
func TestRoutedAfterRestart(t *testing.T) {
	life := func() (*decidertest.Pool, *PrefixAffinity) {
		policy := must(NewPrefixAffinity(PrefixAffinityDefaults))
		return decidertest.New(policy, 3), policy
	}
	a, _ := life()
	prompt := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	d, id := a.Send(func(r *decider.Request) { r.Blocks, r.Input = prompt, 8*decider.DefaultBlockTokens })
	a.Finished(decider.Outcome{ID: id, Server: []byte(d.Server), Status: 200, TTFT: 1})
	var text bytes.Buffer
	if err := a.State().Snapshot(&text); err != nil {
		t.Fatal(err)
	}
	b, policy := life()
	if _, err := b.State().Restore(&text, "", 0); err != nil {
		t.Fatal(err)
	}
	for _, r := range policy.list {
		want := 0
		if r.Name() == d.Server {
			want = len(prompt)
		}
		if got := policy.of(r).Match(prompt); got != want {
			t.Errorf("%s was sent %d blocks as the policy knows after a restart, want %d", r.Name(), got, want)
		}
	}
}
