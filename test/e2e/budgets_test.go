package e2e

import (
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
		explained, err := exec.Command(rig.Binary, "status", "--once", "--admin", s.Agent.Admin).Output()
		if err != nil || !strings.Contains(string(explained), "a-key") {
			t.Errorf("%v:\n%s", err, explained)
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
