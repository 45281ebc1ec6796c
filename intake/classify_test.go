package intake

import (
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/decider/queue"
	"pointsman/session"
)

// Bands, tenants and deadlines are read from what the proxy shows.
func TestClassify(t *testing.T) {
	calendar := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	classes := Classes{
		BandHeader: session.NewHeaders([]string{"x-band"}), DeadlineHeader: session.NewHeaders([]string{"x-deadline"}), Calendar: func() time.Time { return calendar },
		Tenants: []TenantSource{NewTenantSource("x-tenant"), NewTenantSource("user"), NewTenantSource("api_key"), NewTenantSource("session")},
		Rules: []Rule{
			{Band: "urgent", Priority: -1, ByPriority: true},
			{Band: "models", Models: []string{"m2"}, Deadline: time.Minute},
			{Band: "paths", Paths: []string{"/v1/embeddings"}},
			{Band: "tenants", Tenants: []string{"joe"}},
			{Band: "rest"},
		},
	}
	a := decider.Admission{}
	for _, rule := range classes.Rules {
		a.Bands = append(a.Bands, queue.Band{Name: rule.Band})
	}
	in := New(decider.New(func() time.Duration { return 10 * time.Second }, seeds()))
	in.Apply(Config{
		Session: session.NewHeaders([]string{"x-session-id"}), Classes: map[string]Classes{"llama": classes},
		Pools: []decider.PoolConfig{
			{Name: "llama", Models: []string{"m", "m2"}, Policy: policy.LeastWork{}, Replicas: replicas(1), Admission: &a},
		},
	})
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
		{body: `{"model":"m"}`, headers: "x-deadline: 2026-01-02T03:05:05Z\r\n", band: "rest", deadline: 70 * time.Second},
	} {
		var r Request
		if c.path == "" {
			c.path = "/v1/chat/completions"
		}
		if !in.Read(&r, Input{Path: []byte(c.path), Headers: []byte(c.headers), Body: []byte(c.body)}) {
			t.Fatal(r.Decision)
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

// TestSessionsOfTenants: a tenant that names another's session does not share it, so that
// it cannot move it.
func TestSessionsOfTenants(t *testing.T) {
	in := New(decider.New(func() time.Duration { return 0 }, seeds()))
	a := decider.Admission{Bands: []queue.Band{{Name: "all"}}}
	in.Apply(Config{
		Session: session.NewHeaders([]string{"x-session-id"}),
		Classes: map[string]Classes{"llama": {Tenants: []TenantSource{NewTenantSource("api_key")}, Rules: []Rule{{Band: "all"}}}},
		Pools:   []decider.PoolConfig{{Name: "llama", Models: []string{"m"}, Policy: policy.LeastWork{}, Replicas: replicas(1), Admission: &a}},
	})
	of := func(headers string) decider.Request {
		t.Helper()
		var r Request
		if !in.Read(&r, Input{Path: []byte("/v1/chat/completions"), Headers: []byte(headers), Body: []byte(`{"model":"m"}`)}) {
			t.Fatal(r.Decision)
		}
		return r.Request
	}
	ann, joe, nobody := of("x-session-id: s\r\nx-api-key: ann\r\n"), of("x-session-id: s\r\nx-api-key: joe\r\n"), of("x-session-id: s\r\n")
	if ann.Session == joe.Session || ann.Session == nobody.Session || ann.Session != of("x-api-key: ann\r\nx-session-id: s\r\n").Session {
		t.Errorf("%x, %x, %x", ann.Session, joe.Session, nobody.Session)
	}
	if ann.Watched != joe.Watched || ann.Watched != session.Key([]byte("s")) {
		t.Errorf("watched as %x and %x", ann.Watched, joe.Watched)
	}
}
