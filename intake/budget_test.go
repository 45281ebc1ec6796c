package intake

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/budget"
	"pointsman/decider/policy"
	"pointsman/decider/queue"
	"pointsman/session"
)

// budgeted is an intake that gives each key so many tokens a minute.
func budgeted(t *testing.T, perMinute int64, shadow bool) (*Intake, *time.Duration) {
	t.Helper()
	now := new(time.Duration)
	d := decider.New(func() time.Duration { return *now }, seeds())
	d.Budgets = budget.New(func() time.Duration { return *now }, []byte("secret"))
	i := New(d)
	pool := decider.PoolConfig{Name: "p", Models: []string{"m"}, Policy: policy.LeastRequests{}, Replicas: replicas(2)}
	if shadow {
		pool.Shadow = 1
	}
	i.Apply(Config{
		Pools: []decider.PoolConfig{pool}, Shadow: shadow,
		BudgetKeys: session.NewHeaders([]string{"authorization", "x-api-key"}),
		Budgets: budget.Config{
			Keys:   []budget.Key{{Name: "alice", Sum: sha256.Sum256([]byte("sk-alice"))}},
			Limits: []budget.Limit{{Name: "a-key", By: budget.ByKey, PerMinute: perMinute}},
		},
	})
	return i, now
}

var ids uint64

// ask asks for a chat of so many bytes.
func ask(i *Intake, r *Request, headers string, text int) {
	ids++
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, strings.Repeat("word ", text/5))
	i.Handle(r, Input{ID: fmt.Appendf(nil, "%032x", ids), Path: []byte("/v1/chat/completions"), Headers: []byte(headers), Body: []byte(body), BodySize: len(body)}, nil)
}

func used(i *Intake, key string) (u budget.Usage) {
	for _, one := range i.decider.Budgets.Usage() {
		if one.Key == key {
			u = one
		}
	}
	return u
}

// TestBudgetOfKey: a request over its budget is refused with 429; its outcome settles
// what it has cost.
func TestBudgetOfKey(t *testing.T) {
	i, now := budgeted(t, 3000, false)
	p := i.decider.Pool("p")
	var r Request
	const bearer, plain = "Authorization: Bearer sk-alice\r\n", "X-Api-Key: sk-alice\r\n"
	ask(i, &r, bearer, 4000)
	if r.Decision.Server == "" || r.Budget.Tokens != 3000 || r.Budget.Remaining < 1900 || r.Budget.Remaining > 2100 {
		t.Fatalf("%+v, %+v", r.Decision, r.Budget)
	}
	if r.Decision.Input < 900 || r.Decision.Cost > r.Decision.Input {
		t.Errorf("%+v", r.Decision)
	}
	p.Finished(decider.Outcome{ID: r.ID, Server: []byte(r.Decision.Server), Status: 200, Bytes: 6400})
	out := used(i, "alice").Output
	if out < 1000 || out > 2000 {
		t.Fatalf("%d tokens of output", out)
	}
	ask(i, &r, plain, 4000)
	if d := r.Decision; d.Status != 429 || d.Why != "budget" || d.Retry < 50 || !strings.Contains(d.Reason, "3000 tokens per minute (a-key)") {
		t.Fatalf("%+v", d)
	}
	if r.Budget.Remaining != 3000-int64(used(i, "alice").Input+out) {
		t.Errorf("%+v", r.Budget)
	}
	for _, claim := range []string{"Authorization: Bearer alice\r\n", "X-Api-Key: sk-bob\r\nAuthorization: Basic sk-alice\r\n", ""} {
		if ask(i, &r, claim, 4000); r.Decision.Status != 0 {
			t.Errorf("%q: %+v", claim, r.Decision)
		}
	}
	if ask(i, &r, "Authorization: Bearer made-up\r\nX-API-Key: sk-alice\r\n", 4000); r.Decision.Status != 429 {
		t.Errorf("a key that nobody checks hides one with a name: %+v", r.Decision)
	}
	*now += 2 * time.Minute
	if ask(i, &r, bearer, 4000); r.Decision.Status != 0 {
		t.Errorf("%+v", r.Decision)
	}
}

// What no engine has begun costs nothing; what a client has broken off does.
func TestBudgetGivenBack(t *testing.T) {
	for _, c := range []struct {
		name string
		o    decider.Outcome
		kept bool
	}{
		{"served", decider.Outcome{Status: 200, Bytes: 500}, true},
		{"refused by the engine", decider.Outcome{Status: 401, Bytes: 500}, false},
		{"an error", decider.Outcome{Status: 500, End: decider.Failed}, true},
		{"no replica", decider.Outcome{End: decider.Refused}, false},
		{"denied by the proxy", decider.Outcome{End: decider.Denied}, false},
		{"left before the first byte", decider.Outcome{End: decider.ClientGone}, true},
		{"left in mid-stream", decider.Outcome{End: decider.ClientGone, Status: 200, TTFT: time.Second, Bytes: 900}, true},
	} {
		i, _ := budgeted(t, 1e6, false)
		var r Request
		ask(i, &r, "X-Api-Key: sk-alice\r\n", 4000)
		c.o.ID, c.o.Server = r.ID, []byte(r.Decision.Server)
		i.decider.Pool("p").Finished(c.o)
		if u := used(i, "alice"); (u.Input > 0) != c.kept || (u.Free == 0) != c.kept {
			t.Errorf("%s: %+v", c.name, u)
		}
	}
}

// A pool in shadow refuses nothing, nor does a second question of the same request;
// both count once.
func TestBudgetForced(t *testing.T) {
	i, _ := budgeted(t, 10, true)
	var r Request
	ask(i, &r, "X-Api-Key: sk-alice\r\n", 4000)
	if r.Decision.Status != 0 || !r.Decision.Unsteered || used(i, "alice").Input < 900 {
		t.Fatalf("%+v, %+v", r.Decision, used(i, "alice"))
	}
	i.decider.Pool("p").Finished(decider.Outcome{ID: r.ID, Server: []byte("r0"), Status: 200, Bytes: 6400})
	if used(i, "alice").Output < 1000 {
		t.Errorf("%+v", used(i, "alice"))
	}

	i, _ = budgeted(t, 1500, false)
	body := fmt.Sprintf(`{"model":"m","prompt":%q}`, strings.Repeat("word ", 800))
	in := Input{ID: []byte(strings.Repeat("a", 32)), Path: []byte("/v1/completions"), Headers: []byte("X-Api-Key: sk-alice\r\n"), Body: []byte(body), BodySize: len(body)}
	i.Handle(&r, in, nil)
	before := used(i, "alice").Input
	i.decider.Pool("p").Failed(r.ID, r.Decision.Server, decider.Refused)
	in.Exclude = r.Decision.Server
	i.Handle(&r, in, nil)
	if d := r.Decision; d.Status != 0 || d.Server == in.Exclude || used(i, "alice").Input != before {
		t.Errorf("%+v, %+v, before %d", d, used(i, "alice"), before)
	}
}

// What hides its text is charged by its length.
func TestBudgetOfHiddenText(t *testing.T) {
	image := `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
		base64.StdEncoding.EncodeToString(make([]byte, 3000))
	for name, c := range map[string]struct {
		body string
		size int
		want int
	}{
		"no JSON":             {strings.Repeat("a", 8000), 8000, 1800},
		"another encoding":    {"\xff\xfe" + strings.Repeat("{\x00", 4000), 8002, 1800},
		"broken":              {`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", 1600), 8051, 1800},
		"cut":                 {`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", 1600), 80051, 18000},
		"cut within an image": {image, 80000, 18000},
	} {
		i, _ := budgeted(t, 1e9, false)
		var r Request
		i.Handle(&r, Input{ID: []byte(strings.Repeat("b", 32)), Path: []byte("/v1/chat/completions"), Headers: []byte("X-Api-Key: sk-alice\r\n"), Body: []byte(c.body), BodySize: c.size}, nil)
		if u := used(i, "alice"); int(u.Input) < c.want || int(u.Input) > c.want*3/2 {
			t.Errorf("%s: charged %d, want about %d; %+v", name, u.Input, c.want, r.Decision)
		}
	}
}

// A held request that is refused, or whose client leaves, costs nothing.
func TestBudgetOfHeld(t *testing.T) {
	i, _ := budgeted(t, 1e6, false)
	i.Apply(Config{
		Pools: []decider.PoolConfig{{Name: "p", Models: []string{"m"}, Policy: policy.LeastRequests{}, Replicas: replicas(1), Limit: 1,
			Admission: &decider.Admission{Hold: true, Bands: []queue.Band{{Name: "all"}}}}},
		BudgetKeys: session.NewHeaders([]string{"x-api-key"}),
		Budgets:    budget.Config{Keys: []budget.Key{{Name: "alice", Sum: sha256.Sum256([]byte("sk-alice"))}}},
	})
	var first, second Request
	ask(i, &first, "X-Api-Key: sk-alice\r\n", 4000)
	one := used(i, "alice").Input
	ask(i, &second, "X-Api-Key: sk-alice\r\n", 4000)
	if u := used(i, "alice"); first.Decision.Server == "" || second.Decision.Server != "" || u.Input < 2*one-10 {
		t.Fatalf("%+v, %+v, %+v", first.Decision, second.Decision, u)
	}
	i.decider.Pool("p").Finished(decider.Outcome{ID: second.ID, End: decider.ClientGone})
	if u := used(i, "alice"); u.Input != one || u.Free != 1 {
		t.Errorf("%+v, want %d", u, one)
	}
}
