package haproxy

import (
	"strings"
	"testing"
)

// TestServersAndReplicas: what only one of backend and pool has is named, on its line.
func TestServersAndReplicas(t *testing.T) {
	const backend = `backend llama
    server r1 10.0.0.1:8000 check
    server r2 10.0.0.9:8000 check
    server r4 fd00::4:8000 check
    server r5 gpu5:8000 check
    server r6 10.0.0.6:8000 check
    server p1 10.0.0.7:8000 check
    server spare 10.0.0.8:8000 backup
`
	w := Wanted{Pools: []string{"llama"}, Prefill: map[string]string{"10.0.0.7:8000": "p1"}, Listed: map[string]map[string]string{
		"llama": {"r1": "10.0.0.1:8000", "r2": "10.0.0.2:8000", "r3": "10.0.0.3:8000", "r4": "[fd00::4]:8000", "r5": "10.0.0.5:8000"},
	}}
	want := []string{
		`warning: haproxy.cfg:3: backend llama: server r2 is at 10.0.0.9:8000, and the replica of this name at 10.0.0.2:8000: correct one of them`,
		`warning: haproxy.cfg:6: backend llama: server r6 is no replica of pool llama: it gets requests without a decision only: add r6: {address: "10.0.0.6:8000"} to its replicas`,
		`warning: haproxy.cfg:1: backend llama: no server r3, which is a replica of the pool: requests that are decided for it go to others: add server r3 10.0.0.3:8000, or remove the replica`,
	}
	compared := func(text string, w Wanted) (out []string) {
		for _, f := range Advise([]File{{"haproxy.cfg", []byte(text)}}, w) {
			if f.Rule == "servers" {
				rules.See(f)
				out = append(out, f.String())
			}
		}
		return out
	}
	if got := compared(backend, w); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := compared(backend+"    server-template g 3 gpu:8000\n", w); got != nil {
		t.Errorf("servers that HAProxy finds: %s", got)
	}
	w.Listed = nil
	if got := compared(backend, w); got != nil {
		t.Errorf("replicas that are not listed: %s", got)
	}
}
