package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"pointsman/test/rig"
)

// TestBudgets gives each key so many tokens a minute. What is over is refused in the form
// of the client's API, with the headers that clients wait by; other keys are served, and
// so is everyone once the agent is gone.
func TestBudgets(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		sum := sha256.Sum256([]byte("sk-alice"))
		s, _ := rig.Replicas(t, r, 2, "least_requests", fmt.Sprintf(
			"budgets: {keys: {alice: {sha256: %x, tenant: research}}, unknown_keys: each, limits: {a-key: {by: [api_key], tokens_per_minute: 5000}, research: {by: [tenant], tokens_per_day: 100000}}}", sum))
		s.Start()
		client := rig.NewClient(2, true, false)
		defer client.CloseIdleConnections()
		call := func(path, key string, size int) rig.Answer {
			body := rig.Chat(rig.Model, size, 8, false, 3)
			if path == "/v1/responses" {
				body = fmt.Appendf(nil, `{"model":%q,"input":%q}`, rig.Model, rig.Fill(size, 3))
			}
			return rig.Call{Path: path, Body: body, Header: map[string]string{"Authorization": "Bearer " + key, "X-Ratelimit-Limit-Tokens": "7"}}.Do(client, s.Front)
		}
		number := func(a rig.Answer, name string) int {
			t.Helper()
			n, err := strconv.Atoi(strings.TrimSuffix(a.Header.Get(name), "s"))
			if err != nil || len(a.Header.Values(name)) != 1 {
				t.Errorf("%s: %v; %d %.300s", name, a.Header.Values(name), a.Status, a.Body)
			}
			return n
		}
		first := call(rig.ChatPath, "sk-alice", 12000)
		if first.Status != 200 || number(first, "X-Ratelimit-Limit-Tokens") != 5000 {
			t.Fatalf("%d %v: %.300s", first.Status, first.Header, first.Body)
		}
		left := number(first, "X-Ratelimit-Remaining-Tokens")
		if left < 1500 || left > 3000 || number(first, "X-Ratelimit-Reset-Tokens") > 64 {
			t.Errorf("%d tokens left, %v", left, first.Header)
		}
		for path, want := range map[string]string{
			rig.ChatPath:    `{"error":{"message":"Rate limit reached: 5000 tokens per minute (a-key).","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`,
			"/v1/responses": `{"error":{"message":"Rate limit reached: 5000 tokens per minute (a-key).","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`,
			"/v1/messages":  `{"type":"error","error":{"type":"rate_limit_error","message":"Rate limit reached: 5000 tokens per minute (a-key)."}}`,
		} {
			a := call(path, "sk-alice", 14000)
			if a.Status != 429 || strings.TrimSpace(string(a.Body)) != want || !json.Valid(a.Body) {
				t.Errorf("%s: %d %s", path, a.Status, a.Body)
			}
			if n := number(a, "Retry-After"); n < 30 || n > 64 {
				t.Errorf("%s: retry after %d s", path, n)
			}
			if number(a, "X-Ratelimit-Limit-Tokens") != 5000 || number(a, "X-Ratelimit-Remaining-Tokens") > left {
				t.Errorf("%s: %v", path, a.Header)
			}
		}
		if a := call(rig.ChatPath, "sk-bob", 12000); a.Status != 200 {
			t.Errorf("another key: %d %.300s", a.Status, a.Body)
		}
		s.Agent.Settled(rig.Pool)
		m := s.Agent.Metrics()
		if m[`pointsman_budget_refused_total{limit="a-key"}`] != 3 || m[`pointsman_usage_refused_total{key="alice"}`] != 3 ||
			m[`pointsman_usage_requests_total{key="(other)"}`] != 1 || m[`pointsman_usage_output_tokens_total{key="alice"}`] < 1 {
			t.Error("metrics: ", m)
		}
		out, err := exec.Command(rig.Binary, "usage", "--admin", s.Agent.Admin).Output()
		if err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
		if err != nil || len(rows) != 3 || strings.Join(rows[2][:5], " ") != "alice research "+rig.Model+" 1 3" {
			t.Errorf("%v:\n%s", err, out)
		}
		checkHidden(t, s)
		for _, c := range []struct {
			args  []string
			stdin []byte
			want  string
		}{
			{[]string{"status", "--once"}, nil, "a-key"},
			{[]string{"explain", "--header", "Authorization: Bearer sk-alice", "-"}, rig.Chat(rig.Model, 14000, 8, false, 3), "budget: refused with 429"},
		} {
			cmd := exec.Command(rig.Binary, append(c.args, "--admin", s.Agent.Admin)...)
			cmd.Stdin = bytes.NewReader(c.stdin)
			if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v: %v:\n%s", c.args, err, out)
			}
		}
		s.Agent.Kill()
		rig.Eventually(t, 20*time.Second, "the proxy serves without the agent", func() (bool, string) {
			a := call(rig.ChatPath, "sk-alice", 14000)
			return a.Status == http.StatusOK && a.Header.Get("X-Ratelimit-Limit-Tokens") == "", fmt.Sprint(a.Status, a.Header)
		})
	})
}

// checkHidden checks that no key is on any page of the agent, nor in its log.
func checkHidden(t *testing.T, s *rig.Site) {
	t.Helper()
	for _, page := range []string{"/metrics", "/status", "/usage", "/debug/decisions"} {
		text, err := s.Agent.Get(page)
		if err != nil || strings.Contains(string(text)+s.Agent.Log.String(), "sk-") {
			t.Errorf("%v; a key is on %s:\n%s", err, page, text)
		}
	}
}

// TestBudgetsOfCluster: what a key has used by way of an HAProxy, it cannot use again by
// way of an nginx whose agent shares with that of the HAProxy.
func TestBudgetsOfCluster(t *testing.T) {
	t.Parallel()
	haproxies, nginxes := rig.HAProxies(t), rig.Nginxes(t)
	const budgets = "budgets: {limits: {a-key: {by: [api_key], tokens_per_day: 5000}}}"
	h, engines := rig.Replicas(t, haproxies[len(haproxies)-1], 1, "least_requests", budgets)
	n := rig.NewSite(t, nginxes[len(nginxes)-1], fmt.Sprintf("pools: {%s: {models: [%s], policy: least_requests, replicas: %s}}\n",
		rig.Pool, rig.Model, rig.ReplicasYAML(engines...)), budgets)
	at := []string{rig.FreeAddress(t), rig.FreeAddress(t)}
	join(t, h, "a", at[0], at[1], "what the agents of the test share")
	join(t, n, "b", at[1], at[0], "what the agents of the test share")
	n.Patient()
	h.Start()
	n.Start()
	awaitPeer(t, h.Agent, "b", "follows")
	awaitPeer(t, n.Agent, "a", "follows")
	client := rig.NewClient(2, true, false)
	defer client.CloseIdleConnections()
	ask := func(s *rig.Site, key string) int {
		c := rig.Call{Body: rig.Chat(rig.Model, 12000, 8, false, 3), Header: map[string]string{"X-Api-Key": key}}
		return c.Do(client, s.Front).Status
	}
	if status := ask(h, "sk-alice"); status != http.StatusOK {
		t.Fatal(status)
	}
	used := func(s *rig.Site) int {
		return int(s.Agent.Metrics()[`pointsman_budget_used_accounts{limit="a-key"}`])
	}
	rig.Eventually(t, 20*time.Second, "the other agent knows", func() (bool, string) {
		return used(n) == 1, fmt.Sprint(used(n))
	})
	if status := ask(n, "sk-alice"); status != http.StatusTooManyRequests {
		t.Errorf("the same key: %d", status)
	}
	if status := ask(n, "sk-bob"); status != http.StatusOK {
		t.Errorf("another key: %d", status)
	}
}
