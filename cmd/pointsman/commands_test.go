package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"pointsman/check"
	"pointsman/demo"
	"pointsman/misuse"
)

// run parses and runs a command line, and returns what it prints.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	p, err := kong.New(&cli{}, options...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := p.Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	stdout := os.Stdout
	os.Stdout = out
	defer func() { os.Stdout = stdout }()
	err = ctx.Run()
	text, readErr := os.ReadFile(out.Name())
	if readErr != nil {
		t.Fatal(readErr)
	}
	return string(text), err
}

// write writes a configuration.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pointsman.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const onePool = "listen: {nginx: 'unix:///run/pointsman/nginx.sock'}\npools: {llama: {models: [m], replicas: {r1: {address: '127.0.0.1:1'}}}}\n"

func TestRenderAndCheck(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // with no proxy in it
	conf := write(t, onePool)
	for args, want := range map[string]string{
		"version":                                     "pointsman dev (go",
		"render systemd":                              "# ===== file pointsman.service =====",
		"render haproxy --version 3.2":                "# ===== file haproxy.cfg =====",
		"render haproxy --version 3.2 --attach":       "# ===== paste into your section frontend =====",
		"render nginx":                                "# ===== file nginx.conf =====",
		"render nginx --attach --nginx-dir /etc/here": "/etc/here/",
		"check --version 3.2":                         "haproxy 3.2: rendered, but there is no haproxy here to try it",
	} {
		list := strings.Fields(args)
		if list[0] != "version" {
			list = append(list, "--config", conf)
		}
		if out, err := run(t, list...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: no %q, %v in\n%s", args, want, err, out)
		}
	}
	dir := filepath.Join(t.TempDir(), "new")
	if _, err := run(t, "render", "nginx", "--attach", "--config", conf, "--out", dir); err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) == 0 {
		t.Errorf("%v, %v", files, err)
	}
	for _, command := range []string{"render haproxy", "render nginx", "check", "serve"} {
		args := append(strings.Fields(command), "--config", conf+".absent")
		if _, err := run(t, args...); err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("%s: %v", command, err)
		}
	}
}

func TestStatusAndExplain(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/status":
			io.WriteString(w, `{"version": "v9", "pools": []}`)
		case "/signals":
			io.WriteString(w, `[{"pool": "llama", "replica": "r1"}]`)
		default:
			io.WriteString(w, `{"status": 404, "reason": "no pool"}`)
		}
	}))
	defer s.Close()
	body := write(t, `{"model": "m"}`)
	for args, want := range map[string]string{
		"status --once":           "pointsman v9",
		"status":                  "pointsman v9", // not a terminal
		"status --json":           `{"version": "v9", "pools": []}`,
		"status --once --signals": "llama",
		"explain " + body:         "refused with 404: no pool",
		"explain --json " + body:  `{"status": 404, "reason": "no pool"}`,
	} {
		list := append(strings.Fields(args), "--admin", s.Listener.Addr().String())
		if out, err := run(t, list...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: no %q, %v in\n%s", args, want, err, out)
		}
	}
	for _, args := range [][]string{{"status", "--json"}, {"status", "--once"}, {"explain", body}, {"explain", body + ".absent"}} {
		if _, err := run(t, append(args, "--admin", "127.0.0.1:1")...); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}

// TestNotTheAgent: what another server answers is no status, is not explained and not recorded.
func TestNotTheAgent(t *testing.T) {
	for _, c := range []struct {
		status     int
		kind, text string
	}{
		{http.StatusNotFound, "application/json", `{"error": {"message": "Not Found"}}`},
		{http.StatusNotFound, "text/html", "<html>not found</html>"},
		{http.StatusOK, "application/json", `{"status": "ok"}`},
		{http.StatusOK, "text/html; charset=utf-8", "<html>welcome</html>"},
		{http.StatusOK, "text/plain", "OK"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.kind)
			w.WriteHeader(c.status)
			io.WriteString(w, c.text)
		}))
		defer s.Close()
		out := filepath.Join(t.TempDir(), "trace.jsonl.gz")
		for _, args := range []string{
			"status --once", "status --json", "status --signals", "usage", "explain " + write(t, `{"model": "m"}`),
			"record --for 1s --out " + out, "check --config " + write(t, "pools: {a: {replicas: {r: {address: 'h:1'}}}}") + " --live http://127.0.0.1:1/v1/chat/completions",
		} {
			list := append(strings.Fields(args), "--admin", s.Listener.Addr().String())
			if out, err := run(t, list...); err == nil || !strings.Contains(err.Error(), "is this the agent's admin address?") {
				t.Errorf("%d %s: %s: %v in\n%s", c.status, c.text, args, err, out)
			}
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%d %s: a recording", c.status, c.text)
		}
	}
}

func TestDemoOptions(t *testing.T) {
	c := demoCmd{Proxy: []string{demo.HAProxy, demo.Nginx}, HAProxy: "h", Nginx: "run in-box nginx", Policy: []string{"random,session:fallbacks=1", "least_work_late"}, Requests: 7}
	o, err := c.options()
	if err != nil {
		t.Fatal(err)
	}
	if o.Proxy != "haproxy,nginx" || len(o.Commands) != 2 || len(o.Commands[0]) != 1 || len(o.Commands[1]) != 3 || o.Requests != 7 || len(o.Policies) != 3 || o.Policies[1].Flow != "{name: session, fallbacks: 1}" || o.Policies[1].Late || !o.Policies[2].Late || o.Self == "" {
		t.Errorf("%+v", o)
	}
	if c.Run() == nil {
		t.Error("a demo of 7 requests ran")
	}
	c.Policy = []string{"nonsense"}
	if err := c.Run(); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Error(err)
	}
}

// A configuration that is refused ends "serve" with the code that the unit says not to
// start it again for; an address that is taken does not.
func TestRefusedConfigurationIsNotTriedAgain(t *testing.T) {
	unit, err := os.ReadFile("../../templates/systemd/pointsman.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"\nRestartPreventExitStatus=78\n", `"$$EXIT_STATUS" != 78`} {
		if exitRefused != 78 || !strings.Contains(string(unit), line) {
			t.Errorf("the code is %d, and the unit has no %q", exitRefused, line)
		}
	}
	for _, text := range []string{onePool + "nonsense: 1\n", onePool + "cluster: {name: c, listen: '127.0.0.1:0', secret_file: /nonexistent}\n"} {
		_, err := run(t, "serve", "-c", write(t, text))
		if code := exit(io.Discard, err, nil); code != exitRefused {
			t.Errorf("%s: %d, %v", text, code, err)
		}
	}
	if _, err := run(t, "serve", "-c", filepath.Join(t.TempDir(), "none.yaml")); exit(io.Discard, err, nil) != exitRefused {
		t.Error(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, pools, _ := strings.Cut(onePool, "\n")
	_, err = run(t, "serve", "--log-level", "error", "-c", write(t, "listen: {spoe: off, feed: off, admin: '"+l.Addr().String()+"'}\n"+pools))
	if code := exit(io.Discard, err, nil); code != exitFault {
		t.Errorf("an address that is taken: %d, %v", code, err)
	}
}

// Detaching accepts the flags of attach, and shows those that it uses.
func TestFlagsOfDetach(t *testing.T) {
	for args, want := range map[string][]string{
		"detach haproxy --haproxy-config h --backend b -c c --out o --own-file --version 3.2 --write": {"help", "haproxy-config", "out", "write"},
		"detach nginx --nginx-config n --backend b -c c --out o --write":                              {"help", "nginx-config", "out", "write"},
	} {
		ctx, err := kong.Must(&cli{}, options...).Parse(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		var shown []string
		for _, group := range ctx.Selected().AllFlags(true) {
			for _, f := range group {
				shown = append(shown, f.Name)
			}
		}
		slices.Sort(shown)
		slices.Sort(want)
		if !slices.Equal(shown, want) {
			t.Errorf("%s: shows %v, want %v", args, shown, want)
		}
	}
}

// What is wrong in the use of a command takes two lines and exit code 2.
func TestUsage(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // with no proxy in it
	for args, want := range map[string]string{
		"serve --confg x": "pointsman: unknown flag --confg, did you mean \"--config\"?\nRun \"pointsman serve --help\" for its flags.\n",
		"serve -c":        "pointsman: --config needs a value\nRun \"pointsman serve --help\" for its flags.\n",
		"detach nginx x":  "pointsman: unexpected argument x\nRun \"pointsman detach nginx --help\" for its flags.\n",
		"srve":            "pointsman: unexpected argument srve, did you mean \"serve\"?\nRun \"pointsman --help\" for its flags.\n",
	} {
		_, err := kong.Must(&cli{}, options...).Parse(strings.Fields(args))
		var b strings.Builder
		if code := exit(&b, misuse.Of(err), nil); code != exitUsage || b.String() != want {
			t.Errorf("%s: %d\n%s", args, code, b.String())
		}
	}
	for _, args := range []string{"check --lint", "check --live x", "simulate", "simulate --workload x", "simulate --workload chat --policy x", "simulate --workload chat --plot x.bmp", "record --out x.gz --for 1000h", "record --out x.gz --for 0s", "demo --policy x"} {
		_, err := run(t, strings.Fields(args)...)
		if code := exit(io.Discard, err, nil); code != exitUsage {
			t.Errorf("%s: %d, %v", args, code, err)
		}
	}
	ctx, err := kong.Must(&cli{}, options...).Parse([]string{"attach", "haproxy"})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if exit(&b, misuse.Of(errors.New("wrong")), ctx); !strings.Contains(b.String(), `"pointsman attach haproxy --help"`) {
		t.Error(b.String())
	}
	if _, err := run(t, "check", "-c", write(t, onePool), "--version", "3.2"); err != nil {
		t.Error(err)
	}
	if out, err := run(t, arguments([]string{"--version"})...); err != nil || !strings.HasPrefix(out, "pointsman dev (go") {
		t.Error(out, err)
	}
	if code := exit(io.Discard, check.ErrFaults, nil); code != exitFault {
		t.Error(code)
	}
}
