package resolve

import (
	"fmt"
	"slices"
	"testing"
)

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		top, pool, replica string
		want               []string
	}{
		{"", "policy: kv_aware, kv_events: {port: 5557}, ", ", kv_events: {port: 5567}", nil},
		{"", "kv_events: {port: 5557}, ", ", kv_events: {port: 5567}", []string{
			"f:1:30: pools[llama].kv_events: policy least_work does not use KV events: the agent does not follow them",
			"f:1:87: pools[llama].replicas[r1].kv_events: policy least_work does not use KV events: the agent does not follow them",
		}},
		{"", "kv_events: {bind: '127.0.0.1:5557'}, ", "", []string{"f:1:30: pools[llama].kv_events: policy least_work does not use KV events: the agent does not follow them"}},
		{"", "policy: {name: kv_aware, timeout: 49ms}, ", "", nil},
		{"", "policy: {name: kv_aware, timeout: 50ms}, ", "", []string{
			"f:1:64: pools[llama].policy.timeout: a request waits up to 50ms for its tokens, but the proxy waits only 50ms for the decision (haproxy.processing_timeout)"}},
		{"", "policy: {name: kv_aware, timeout: 1s}, admission: {wait: agent}, ", "", nil},
		{"listen: {spoe: off, nginx: '127.0.0.1:1'}\n", "policy: {name: kv_aware, timeout: 99ms}, ", "", nil},
		{"listen: {nginx: '127.0.0.1:1'}\n", "policy: {name: kv_aware, timeout: 1s}, ", "", []string{
			"f:2:64: pools[llama].policy.timeout: a request waits up to 1s for its tokens, but the proxy waits only 50ms for the decision (haproxy.processing_timeout)",
			"f:2:64: pools[llama].policy.timeout: a request waits up to 1s for its tokens, but the proxy waits only 100ms for the decision (nginx.processing_timeout)"}},
		{"", "mode: 10%, policy: least_work_late, ", "", []string{
			"f:1:36: pools[llama].mode: only the 10% of the requests that are decided wait and are refused; the others pass the admission, and take capacity at once"}},
		{"mode: 12.5%\n", "admission: {wait: agent}, ", "", []string{
			"f:1:7: mode: only the 12.5% of the requests that are decided wait and are refused; the others pass the admission, and take capacity at once"}},
		{"mode: shadow\n", "policy: least_work_late, ", "", nil},
		{"mode: 10%\n", "", "", nil},
		{"budgets: {limits: {a: {tokens_per_day: 1}}}\n", "", "", nil},
		{"budgets: {limits: {a: {tokens_per_day: 1}}}\nmode: 10%\n", "", "", []string{
			"f:2:7: mode: 90% of the requests are left to the proxy: budgets count them, and refuse none of them"}},
	} {
		text := fmt.Sprintf("%spools: {llama: {models: [m], %sreplicas: {r1: {address: 'h:1'%s}}}}\n", c.top, c.pool, c.replica)
		r, err := parse(t, text)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range r.Warnings() {
			got = append(got, w.Error())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%sgot  %q\nwant %q", text, got, c.want)
		}
	}
}
