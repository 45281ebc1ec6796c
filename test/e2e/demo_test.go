package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pointsman/test/rig"
)

// TestDemo plays the demo's scenarios, small and fast, on the newest proxies. No
// request fails, and the agent decides each one.
func TestDemo(t *testing.T) {
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		name, _, _ := strings.Cut(r.Name, "-")
		demo := func(args ...string) string {
			return command(t, append([]string{"demo", "--proxy", name, "--" + name, strings.Join(r.Bin.Command().Args, " "),
				"--replicas", "2", "--speed", "40"}, args...)...)
		}
		type result struct {
			Proxy, Policy    string
			Requests, Served int
			Failed, Decided  int
			FellOpen         int            `json:"fell_open"`
			InFlight         int            `json:"in_flight_after"`
			PerReplica       map[string]any `json:"per_replica"`
		}
		results := json.NewDecoder(strings.NewReader(demo("--requests", "150", "--policy", "round_robin,least_work_late", "--json")))
		for _, policy := range []string{"round_robin", "least_work_late"} {
			var got result
			if err := results.Decode(&got); err != nil {
				t.Fatal(err)
			}
			if got.Proxy != name || got.Policy != policy || got.Requests != 150 || got.Served != 150 || got.Failed != 0 ||
				got.Decided < 150 || got.FellOpen != 0 || got.InFlight != 0 || len(got.PerReplica) != 2 {
				t.Errorf("%+v", got)
			}
		}
		var shared result
		if err := json.Unmarshal([]byte(demo("--requests", "90", "--agents", "2", "--policy", "least_requests", "--json")), &shared); err != nil {
			t.Fatal(err)
		}
		if shared.Served != 90 || shared.Failed != 0 || shared.Decided < 90 || shared.FellOpen != 0 || shared.InFlight != 0 {
			t.Errorf("two agents: %+v", shared)
		}
		if table := demo("--requests", "60", "--policy", "least_work,session:load_bound=1.25"); strings.Count(table, "\n") < 8 || !strings.Contains(table, "session") {
			t.Errorf("printed:\n%s", table)
		}
		if table := demo("--scenario", "agents", "--requests", "60", "--policy", "least_work"); !strings.Contains(table, "least_work") {
			t.Errorf("printed:\n%s", table)
		}
		if table := demo("--scenario", "priorities", "--requests", "60"); !strings.Contains(table, "chat") || !strings.Contains(table, "batch") {
			t.Errorf("printed:\n%s", table)
		}
	})
}

// TestDemoOfBothProxies plays the demo on an HAProxy and an nginx, each with an agent, which
// share by a NATS server beside them.
func TestDemoOfBothProxies(t *testing.T) {
	bus := &natsServer{t: t, address: rig.FreeAddress(t)}
	host, port, _ := strings.Cut(bus.address, ":")
	bus.args = []string{"-a", host, "-p", port}
	t.Cleanup(bus.kill)
	bus.start()
	haproxies, nginxes := rig.HAProxies(t), rig.Nginxes(t)
	runs := func(r rig.Release) string { return strings.Join(r.Bin.Command().Args, " ") }
	h, n := haproxies[len(haproxies)-1], nginxes[len(nginxes)-1]
	var got struct {
		Proxy, Version          string
		Served, Failed, Decided int
		FellOpen                int `json:"fell_open"`
		InFlight                int `json:"in_flight_after"`
	}
	out := command(t, "demo", "--proxy", "haproxy,nginx", "--haproxy", runs(h), "--nginx", runs(n), "--agents", "2", "--nats", "nats://"+bus.address,
		"--replicas", "2", "--speed", "40", "--requests", "90", "--json")
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.Proxy != "haproxy,nginx" || strings.Count(got.Version, ",") != 1 || got.Served != 90 || got.Failed != 0 || got.Decided < 90 || got.FellOpen != 0 || got.InFlight != 0 {
		t.Errorf("%+v", got)
	}
}

// TestSimulateCommand compares policies on a trace, as text, as JSON and as pictures.
func TestSimulateCommand(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace.jsonl")
	var lines bytes.Buffer
	for i := range 200 {
		line, err := json.Marshal(map[string]any{
			"timestamp": 50 * i, "session": string(rune('a' + i%7)), "output_tokens": 40,
			"body": map[string]any{"model": "m", "stream": true, "messages": []any{
				map[string]any{"role": "user", "content": strings.Repeat("word ", 400+100*(i%7))}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	if err := os.WriteFile(trace, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	simulate := func(args ...string) string {
		return command(t, append([]string{"simulate", "--trace", trace, "--replicas", "2", "--cache-tokens", "20000",
			"--load", "0.8", "--policy", "round_robin,session:load_bound=1.25,least_work,shared_cache"}, args...)...)
	}
	for _, picture := range []string{"compare.svg", "compare.png"} {
		path := filepath.Join(dir, picture)
		table := simulate("--seeds", "2", "--plot", path)
		for _, policy := range []string{"round_robin", "session", "least_work", "shared_cache"} {
			if !strings.Contains(table, policy) {
				t.Errorf("no %s in\n%s", policy, table)
			}
		}
		if info, err := os.Stat(path); err != nil || info.Size() < 1000 {
			t.Errorf("%s: %v", picture, err)
		}
	}
	results := json.NewDecoder(strings.NewReader(simulate("--json", "--agents", "2", "--feedback-delay", "100ms", "--fail", "3s@1")))
	n := 0
	for results.More() {
		var got struct {
			Policy  string
			HitRate float64 `json:"hit_rate"`
		}
		if err := results.Decode(&got); err != nil || got.Policy == "" || got.HitRate < 0 || got.HitRate > 1 {
			t.Fatalf("%+v: %v", got, err)
		}
		n++
	}
	if n != 4 {
		t.Errorf("%d results, want 4", n)
	}
}

// TestRefusedCommands holds commands with arguments that cannot work to a reason
// and a status other than 0.
func TestRefusedCommands(t *testing.T) {
	for _, c := range []struct{ args, reason string }{
		{"serve --config /nonexistent.yaml", "nonexistent"},
		{"check --config /nonexistent.yaml", "nonexistent"},
		{"render haproxy --config /nonexistent.yaml", "nonexistent"},
		{"simulate --trace /nonexistent.jsonl --replicas 2 --cache-tokens 1000", "nonexistent"},
		{"status --once --admin 127.0.0.1:1", "refused"},
		{"demo --requests 1", "at least 10 requests"},
		{"demo --policy no_such_policy", "no_such_policy"},
	} {
		out, err := exec.Command(rig.Binary, strings.Fields(c.args)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.reason) {
			t.Errorf("%s: %v, want %q in\n%s", c.args, err, c.reason, out)
		}
	}
}

// command runs the binary and returns its standard output.
func command(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(rig.Binary, args...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("pointsman %s: %v\n%s\n%s", strings.Join(args, " "), err, out.String(), log.String())
	}
	return out.String()
}
