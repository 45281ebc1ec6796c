package resolve

import (
	"strings"
	"testing"
	"time"
)

// withAdmission resolves a configuration with an admission, in flow form, of a
// pool with further keys.
func withAdmission(t *testing.T, top, keys, admission string) (*Config, error) {
	t.Helper()
	return parse(t, top+"pools: {llama: {models: [m], "+keys+"replicas: {r1: {address: 'h:1'}}, admission: "+admission+"}}\n")
}

// The timeouts of the proxies exceed the longest hold, or are refused.
func TestTimeoutsCoverHolds(t *testing.T) {
	for _, c := range []struct {
		top, keys, admission string
		haproxy, nginx       time.Duration
		refusal              string
	}{
		{"", "", "{wait: agent, bands: {a: {ttl: 10s}, b: {ttl: 20s}}}", 21 * time.Second, 21 * time.Second, ""},
		{"haproxy: {processing_timeout: 40s}\n", "", "{wait: agent}", 40 * time.Second, 31 * time.Second, ""},
		{"haproxy: {processing_timeout: 30s}\n", "", "{wait: agent}", 0, 0, `f:1:31: haproxy.processing_timeout: is shorter than the longest hold of an admission; want 31s or more, or leave the key out`},
		{"nginx: {processing_timeout: 1s}\n", "", "{wait: agent}", 0, 0, "nginx.processing_timeout: is shorter"},
		{"", "max_requests: 4, ", "{wait: proxy}", 50 * time.Millisecond, 100 * time.Millisecond, ""},
		{"haproxy: {version: 2.6}\n", "max_requests: 4, ", "", 50 * time.Millisecond, 100 * time.Millisecond, ""},
		{"haproxy: {version: 2.6}\n", "", "", 0, 0, "pools[llama].admission: on HAProxy 2.6 requests wait in the proxy, which needs max_requests"},
		{"haproxy: {version: 2.6}\n", "max_requests: 4, ", "{matching: fifo}", 0, 0, "admission.matching: on HAProxy 2.6"},
		{"haproxy: {version: 2.6}\n", "max_requests: 4, health: {poll: 1s}, ", "{no_replica: hold}", 0, 0, "admission.no_replica: on HAProxy 2.6"},
		{"haproxy: {processing_timeout: 50ms}\n", "health: {poll: 1s}, ", "{wait: agent, no_replica: hold, bands: {a: {ttl: 5m}}}", 0, 0, "processing_timeout: is shorter than the longest hold of an admission; want 5m1s"},
		{"haproxy: {version: 3.2}\n", "", "", 31 * time.Second, 31 * time.Second, ""},
		{"haproxy: {version: 2.6}\n", "policy: least_work_late, ", "", 31 * time.Second, 31 * time.Second, ""},
		{"", "policy: least_work_late, max_requests: 4, ", "{wait: proxy}", 0, 0, "admission.wait: policy least_work_late holds requests in the agent"},
	} {
		var h, n time.Duration
		var err1, err2 error
		r, err := withAdmission(t, c.top, c.keys, c.admission)
		if err == nil {
			h, err1 = r.HAProxyTimeout()
			n, err2 = r.NginxTimeout()
		}
		if c.refusal == "" && (h != c.haproxy || n != c.nginx) {
			t.Errorf("%s%s%s: %v and %v, want %v and %v", c.top, c.keys, c.admission, h, n, c.haproxy, c.nginx)
		}
		said := ""
		for _, err := range []error{err, err1, err2} {
			if err != nil {
				said += err.Error() + "\n"
			}
		}
		if !strings.Contains(said, c.refusal) || c.refusal == "" && said != "" {
			t.Errorf("%s%s%s: refused with %q, want %q", c.top, c.keys, c.admission, said, c.refusal)
		}
	}
}

// Requests that wait in the proxy wait in its servers' queues, as long as the
// bands allow.
func TestProxyQueues(t *testing.T) {
	r, err := withAdmission(t, "haproxy: {version: 2.6}\n", "max_requests: 4, ", "{wait: proxy, response_headers: true, bands: {a: {ttl: 2m, max_requests: 70}, b: {max_requests: 30}}}")
	if err != nil {
		t.Fatal(err)
	}
	o, err := r.HAProxy()
	if err != nil {
		t.Fatal(err)
	}
	p := o.Pools[0]
	if p.Replicas[0].MaxConn != 4 || p.QueueTimeout != 2*time.Minute || !p.AdmissionHeaders || o.Waiting != 100 {
		t.Errorf("%+v, %d may wait", p, o.Waiting)
	}
}
