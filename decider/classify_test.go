package decider

import (
	"testing"
	"time"

	"pointsman/decider/queue"
	"pointsman/session"
)

// Bands, tenants and deadlines are read from what the proxy shows.
func TestClassify(t *testing.T) {
	epoch := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	classes := Classes{
		BandHeader: session.NewHeaders([]string{"x-band"}), DeadlineHeader: session.NewHeaders([]string{"x-deadline"}), Epoch: epoch,
		Tenants: []TenantSource{NewTenantSource("x-tenant"), NewTenantSource("user"), NewTenantSource("api_key"), NewTenantSource("session")},
		Rules: []Rule{
			{Band: "urgent", Priority: -1, ByPriority: true},
			{Band: "models", Models: []string{"m2"}, Deadline: time.Minute},
			{Band: "paths", Paths: []string{"/v1/embeddings"}},
			{Band: "tenants", Tenants: []string{"joe"}},
			{Band: "rest"},
		},
	}
	a := Admission{Classes: classes}
	for _, rule := range classes.Rules {
		a.Bands = append(a.Bands, queue.Band{Name: rule.Band})
	}
	clock := &testClock{now: 10 * time.Second}
	d := New(clock.tell, seeds())
	d.Apply(Config{Session: session.NewHeaders([]string{"x-session-id"}), Pools: []PoolConfig{
		{Name: "llama", Models: []string{"m", "m2"}, Policy: LeastWork{}, Replicas: replicas(1), Admission: &a},
	}})
	for _, c := range []struct {
		path, headers, body, band, tenant string
		deadline                          time.Duration
	}{
		{body: `{"model":"m"}`, band: "rest"},
		{body: `{"model":"m","priority":-3}`, band: "urgent"},
		{body: `{"model":"m2"}`, band: "models", deadline: 70 * time.Second},
		{body: `{"model":"m2"}`, headers: "X-Band: rest\r\n", band: "rest"},
		{body: `{"model":"m"}`, headers: "X-Band: none\r\n", band: "rest"},
		{path: "/v1/embeddings?x", body: `{"model":"m"}`, band: "paths"},
		{body: `{"model":"m","user":"joe"}`, band: "tenants", tenant: "joe"},
		{body: `{"model":"m","user":"joe"}`, headers: "x-tenant: ann\r\n", band: "rest", tenant: "ann"},
		{body: `{"model":"m"}`, headers: "authorization: bearer sk-1\r\nx-session-id: s\r\n", band: "rest", tenant: "sk-1"},
		{body: `{"model":"m"}`, headers: "X-Api-Key: sk-1\r\n", band: "rest", tenant: "sk-1"},
		{body: `{"model":"m"}`, headers: "x-session-id: s\r\n", band: "rest", tenant: "s"},
		{body: `{"model":"m2"}`, headers: "x-deadline: 2.5\r\n", band: "models", deadline: 12500 * time.Millisecond},
		{body: `{"model":"m"}`, headers: "x-deadline: 2026-01-02T03:05:05Z\r\n", band: "rest", deadline: time.Minute},
	} {
		var r Request
		var out Decision
		if c.path == "" {
			c.path = "/v1/chat/completions"
		}
		if !d.Read(&r, Input{Path: []byte(c.path), Headers: []byte(c.headers), Body: []byte(c.body)}, &out) {
			t.Fatal(out)
		}
		want := uint64(0)
		if c.tenant != "" {
			want = session.Key([]byte(c.tenant))
		}
		if got := a.Bands[r.Band].Name; got != c.band || r.Tenant != want || r.Deadline != c.deadline || r.Bytes != len(c.body) {
			t.Errorf("%+v: band %s, tenant %x, deadline %v, %d bytes", c, got, r.Tenant, r.Deadline, r.Bytes)
		}
	}
}

func TestParseDeadline(t *testing.T) {
	epoch := time.Unix(1_700_000_000, 0)
	now := time.Minute
	for in, want := range map[string]time.Duration{
		"": 0, "soon": 0, "NaN": 0, "1e300": 0, "2": 62 * time.Second, "0.5": 60500 * time.Millisecond,
		"800ms": 60800 * time.Millisecond, "2m": 3 * time.Minute, "-5": now, "-5s": now,
		"1700000090": 90 * time.Second, "1700000090500": 90500 * time.Millisecond, "1600000000": 1,
		"2023-11-14T22:13:30Z": 10 * time.Second, "2023-11-14t22:13:30z": 10 * time.Second,
		"99999999999999999999999999999999999999999": 0,
	} {
		if got := parseDeadline([]byte(in), now, epoch); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
	if got := parseDeadline([]byte("1700000090"), now, time.Time{}); got != 0 {
		t.Errorf("without an epoch: %v", got)
	}
}

func FuzzParseDeadline(f *testing.F) {
	for _, s := range []string{"2.5", "800ms", "1700000090", "2023-11-14T22:13:30Z", "-1h", "1e99"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, v []byte) {
		if d := parseDeadline(v, time.Hour, time.Unix(0, 0)); d < 0 {
			t.Errorf("%q: %v", v, d)
		}
	})
}
