package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"pointsman/misuse"
)

// code runs a command line and returns its exit code and error, those of the parser included.
func code(t *testing.T, args ...string) (int, error) {
	t.Helper()
	if _, err := kong.Must(&cli{}, options...).Parse(args); err != nil {
		return exit(io.Discard, misuse.Of(err), nil), err
	}
	_, err := run(t, args...)
	return exit(io.Discard, err, nil), err
}

// put writes a file and returns its path.
func put(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A value that is wrong, or names nothing that is there, ends each command with exit code
// 2, also where only a trace, a configuration or the proxy's own files show it.
func TestWrongValuesEndWith2(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // with no proxy in it
	dir := t.TempDir()
	put := func(name, text string) string { return put(t, filepath.Join(dir, name), text) }
	conf := put("pointsman.yaml", onePool)
	body := put("body.json", `{"model": "m"}`)
	trace := put("trace.jsonl", `{"timestamp": 1764000000123, "input_length": 6000, "output_length": 50, "hash_ids": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}`+"\n")
	const recorded = `,"input_length":512,"output_length":5,"stream":true,"outcome":"served","duration":1,"block_tokens":512,"hash_ids":[1]}` + "\n"
	recording := put("recording.jsonl", `{"recorder":"pointsman","form":1,"pools":[{"name":"a","policy":"random","replicas":2,"cache_tokens":9000}]}`+"\n"+`{"timestamp":0,"pool":"a"`+recorded+`{"timestamp":1000,"pool":"b"`+recorded)
	haproxy := put("haproxy.cfg", "defaults\n\tmode http\n\nfrontend api\n\tbind :8080\n\tdefault_backend llm\n\nbackend llm\n\tserver r1 127.0.0.1:8000\n")
	nginx := put("nginx.conf", "events {}\nhttp {\n\tupstream llm { server 127.0.0.1:8000; }\n\tserver {\n\t\tlisten 8081;\n\t\tlocation /v1/ { proxy_pass http://llm; }\n\t}\n}\n")
	attach := map[string][]string{
		"haproxy": {"attach", "haproxy", "--haproxy-config", haproxy, "-c", filepath.Join(dir, "own", "p.yaml"), "--version=3.2", "--out", dir},
		"nginx":   {"attach", "nginx", "--nginx-config", nginx, "-c", filepath.Join(dir, "own", "p.yaml"), "--out", dir},
	}
	// One request, so that what is refused late is refused at once.
	simulate := []string{"simulate", "--trace", trace, "--load=0.5"}
	for _, c := range []struct {
		args   []string
		wrong  []string // flags, each tried by itself
		unlike string   // what the error does not say, "" for any
	}{
		{args: simulate, wrong: []string{
			"--replicas=-1", "--replicas=0", "--replicas=1000000000", "--cache-tokens=-1", "--cache-tokens=0", "--cache-tokens=100", "--cache-tokens=1024",
			"--cpu-cache-tokens=-1", "--cpu-transfer-speed=-1", "--cpu-transfer-speed=NaN", "--cpu-transfer-speed=Inf",
			"--profile=", "--profile=x", "--profile=70b:chunk=0", "--load=0", "--load=-1", "--load=NaN", "--load=Inf", "--rate=-1", "--rate=NaN", "--rate=Inf",
			"--policy=", "--policy=x", "--policy=session:load_bound=-1", "--seed=-1", "--seeds=0", "--seeds=-1", "--baseline=x", "--baseline=random,session",
			"--slo=", "--slo=ttft=-1s", "--max-tokens=0", "--max-tokens=x", "--plot=x.bmp", "--feedback-delay=-1s", "--metrics=-1s", "--metrics=1ns", "--poll=-1s", "--poll=1ns",
			"--visible-chars=-1", "--prefill=0", "--prefill=8", "--prefill=1000000000", "--transfer=0GB/s", "--router-queue=16", "--router-queue=x",
			"--agents=-1", "--agents=1000000000", "--share=-1s", "--partition=x", "--partition=1s@1s",
			"--event=x", "--event=slow@1s:r8:0.3", "--event=leave@1s:r8", "--event=join@1s:r8", "--event=foreign=2", "--fail=x", "--fail=1s@8", "--fail=1s@-1",
			"--speed-mix=0", "--speed-mix=1,-1", "--speed-mix=NaN", "--speed-mix=1e300", "--mirror-scale=-1", "--mirror-scale=1e9", "--token-noise=1", "--token-noise=NaN",
			"--pool=x", "--workload=chat", "--workload=x",
		}},
		{args: []string{"simulate", "--workload=chat", "--load=0.5"}, wrong: []string{"--event=leave@1s:r8", "--fail=1s@8"}},
		{args: []string{"simulate", "--trace", recording}, wrong: []string{"--seed=1", "--pool=c"}},
		{args: []string{"demo"}, wrong: []string{
			"--proxy=", "--proxy=x", "--proxy=haproxy,nginx", "--haproxy=", "--haproxy= ", "--proxy=nginx --nginx=", "--scenario=x", "--policy=", "--policy=x", "--scenario=priorities --policy=least_work_late",
			"--scenario=priorities --policy=random,session", "--requests=-1", "--requests=0", "--requests=9", "--replicas=-1", "--replicas=0", "--replicas=65",
			"--agents=-1", "--agents=17", "--proxies=-1", "--proxies=17", "--nats=x", "--nats=http://127.0.0.1:1", "--agents=2 --nats=127.0.0.1:1", "--load=0", "--load=-1", "--load=NaN", "--load=3",
			"--speed=0", "--speed=-1", "--speed=NaN", "--speed=Inf", "--cache-tokens=-1", "--cache-tokens=0", "--cache-tokens=100", "--seed=-1",
		}, unlike: "-- "},
		{args: []string{"engine", "--listen=127.0.0.1:0"}, wrong: []string{
			"--listen=", "--listen=x", "--listen=127.0.0.1", "--listen=127.0.0.1:99999", "--listen=127.0.0.1:x", "--kind=x", "--profile=x", "--event-form=x",
			"--speed=-1", "--speed=NaN", "--speed=Inf", "--block-size=-1", "--block-size=1000000000", "--ranks=-1", "--ranks=1000000000",
			"--cache-tokens=-1", "--cpu-cache-tokens=-1", "--cpu-transfer-speed=-1", "--cpu-transfer-speed=NaN",
			"--events=x", "--events=ipc:///x", "--events=http://127.0.0.1:1", "--events=tcp://127.0.0.1:99999", "--replay=x", "--replay=tcp://127.0.0.1",
		}},
		{args: []string{"render", "haproxy", "-c", conf}, wrong: []string{"--version=2.4", "--version=x", "--version=-1", "--version=3", "--version=3.2 --spoe-conf=", "--version=3.2 --spoe-conf=/a\"b"}},
		{args: []string{"render", "nginx", "-c", conf}, wrong: []string{"--version=2.4", "--version=x", "--attach --nginx-dir=", "--attach --nginx-dir=/a$b"}},
		{args: []string{"render"}, wrong: []string{"x"}},
		{args: attach["haproxy"], wrong: []string{"--backend=x", "--version=2.4", "--version=x", "--out=/a\"b"}},
		{args: attach["nginx"], wrong: []string{"--backend=x", "--out=/a\"b"}},
		{args: []string{"check", "-c", conf}, wrong: []string{
			"--lint", "--version=2.4", "--version=x", "--live=x", "--live=ftp://127.0.0.1/", "--live=http://", "--live=http://127.0.0.1:99999/",
			"--live=http://127.0.0.1:1/ --header=x", "--live=http://127.0.0.1:1/ --admin=", "--live=http://127.0.0.1:1/ --admin=https://127.0.0.1:1",
			"--backend=x --haproxy-config=" + haproxy, "--backend=x --nginx-config=" + nginx, "--lint --backend=x --haproxy-config=" + haproxy, "--lint --backend=x --nginx-config=" + nginx,
		}},
		{args: []string{"status", "--once"}, wrong: append([]string{"--every=-1s", "--every=x"}, wrongAdmin...)},
		{args: []string{"status", "--json"}, wrong: wrongAdmin},
		{args: []string{"usage"}, wrong: wrongAdmin},
		{args: []string{"explain", body, "--admin=127.0.0.1:1"}, wrong: append([]string{"--header=", "--header=x", "--header=:x", "--header=a/b:x"}, wrongAdmin...)},
		{args: []string{"record", "--out", filepath.Join(dir, "r.jsonl.gz"), "--admin=127.0.0.1:1"}, wrong: append([]string{"--out=", "--out=x", "--for=0s", "--for=-1s", "--for=169h", "--for=x"}, wrongAdmin...)},
		{args: []string{"serve", "-c", conf}, wrong: []string{"--log-level=x", "--log-format=x"}},
		{args: []string{"completion"}, wrong: []string{"x", ""}},
		{args: []string{"version"}, wrong: []string{"x"}},
	} {
		for _, flags := range c.wrong {
			words := strings.Split(flags, " --")
			for i := range words[1:] {
				words[i+1] = "--" + words[i+1]
			}
			args := append(append([]string{}, c.args...), words...)
			got, err := code(t, args...)
			if got != exitUsage {
				t.Errorf("%q: exit code %d, want %d: %v", args, got, exitUsage, err)
			}
			if c.unlike != "" && err != nil && strings.Contains(err.Error(), c.unlike) {
				t.Errorf("%q: %v", args, err)
			}
		}
	}
}

// wrongAdmin are flags with admin addresses that none can have.
var wrongAdmin = []string{"--admin=", "--admin=http://", "--admin=unix://", "--admin=https://127.0.0.1:1", "--admin=ftp://127.0.0.1:1", "--admin=127.0.0.1:99999", "--admin=127.0.0.1:x", "--admin=http://[::1", "--admin=a b:1"}

// What another try may mend ends with 1: files that cannot be read or written, addresses in
// use, agents and proxies that are not there.
func TestFaultsEndWith1(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // with no proxy in it
	dir := t.TempDir()
	conf, bad := put(t, filepath.Join(dir, "pointsman.yaml"), onePool), put(t, filepath.Join(dir, "bad.yaml"), onePool+"nonsense: 1\n")
	body := put(t, filepath.Join(dir, "body.json"), `{"model": "m"}`)
	absent := filepath.Join(dir, "absent")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	for _, args := range [][]string{
		{"simulate", "--trace", absent}, {"simulate", "--trace", conf}, {"simulate", "--workload=chat", "--load=0.1", "--replicas=1", "--plot", filepath.Join(absent, "x.svg")},
		{"demo", "--requests=10", "--haproxy", absent},
		{"engine", "--listen", l.Addr().String()}, {"engine", "--listen=127.0.0.1:0", "--events", "tcp://" + l.Addr().String()},
		{"render", "haproxy", "-c", absent}, {"render", "haproxy", "-c", bad}, {"render", "nginx", "-c", conf, "--out", filepath.Join(conf, "x")},
		{"check", "-c", absent}, {"check", "-c", bad}, {"check", "-c", conf, "--version=3.2", "--haproxy-config", absent}, {"check", "--lint", "--nginx-config", absent},
		{"check", "-c", conf, "--live=http://127.0.0.1:1/", "--admin=127.0.0.1:1"}, {"config", "-c", bad},
		{"attach", "haproxy", "--haproxy-config", absent}, {"attach", "nginx", "--nginx-config", absent}, {"detach", "haproxy", "--haproxy-config", absent},
		{"status", "--once", "--admin=127.0.0.1:1"}, {"usage", "--admin=127.0.0.1:1"}, {"usage", "--admin=unix://" + absent}, {"usage", "--admin", s.URL},
		{"explain", body, "--admin=127.0.0.1:1"}, {"explain", absent, "--admin=127.0.0.1:1"},
		{"record", "--out", filepath.Join(dir, "r.jsonl.gz"), "--admin=127.0.0.1:1"}, {"record", "--out", filepath.Join(dir, "r.jsonl.gz"), "--admin", s.URL},
		{"man", filepath.Join(conf, "x")},
	} {
		if got, err := code(t, args...); got != exitFault {
			t.Errorf("%q: exit code %d, want %d: %v", args, got, exitFault, err)
		}
	}
}
