package haproxy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pointsman/advice"
	"pointsman/templates"
)

// attachedSites are configurations to which pointsman is attached as it should
// be, each in another form. ours is the file that is rendered for the first.
var attachedSites = []struct {
	name, text string
	ours       bool
}{
	{"one pool in the rendered file", `global
    tune.bufsize 131072   # chroot /elsewhere
    log /dev/log local0
defaults
    mode http
    log global
    option abortonclose
frontend plain
    bind :80
    http-request redirect scheme https
frontend fe
    bind :443 ssl crt /etc/x.pem
    log ring@pointsman-ring len 2048 format raw profile pointsman local0
    acl is_static path_beg /static
    use_backend site if is_static
    use_backend llama if { path_beg /v1/ }
    default_backend site
backend site
    server s1 10.9.0.1:80
`, true},
	{"several pools", `global
    tune.bufsize 131072
defaults base
    mode http
    option abortonclose
frontend plain from base
    bind :80
    redirect scheme https unless { path /healthz }
frontend fe from base
    bind :443
    log ring@pointsman-ring len 2048 format raw profile pointsman local0
    acl pm_llm path_beg /v1/
    filter spoe engine pointsman config /etc/pointsman/pointsman-spoe.conf
    http-request set-var(txn.pm.rid) uuid() if METH_POST pm_llm
    http-request wait-for-body time 30s if METH_POST pm_llm
    http-request send-spoe-group pointsman pm-route if METH_POST pm_llm
    use_backend %[var(txn.pm.pool)] if { var(txn.pm.pool) -m found }
    use_backend llama if pm_llm
    default_backend site
backend site from base
    server s1 10.9.0.1:80
backend llama from base
    option http-server-close
    use-server %[var(txn.pm.server)] if { var(txn.pm.server) -m found }
    server r1 10.0.0.1:8000
backend qwen from base
    option http-server-close
    use-server %[var(txn.pm.server)] if { var(txn.pm.server) -m found }
    server r1 10.0.0.2:8000
`, false},
	{"the user's own backend asks", `global
    tune.bufsize 131072
    log ring@pointsman-ring len 2048 format raw local0
defaults
    mode http
    log global
    log-format "PM1 ev=close PM. own %ST"
    option abortonclose
    option http-server-close
frontend plain
    bind :80
    redirect scheme https
listen fe
    bind :443
    use_backend llama if { path /v1/chat/completions }
    server s1 10.9.0.1:80
backend llama
    filter spoe engine pointsman config pointsman-spoe.conf
    http-request set-var(txn.pm.rid) uuid() if METH_POST
    http-request wait-for-body time 30s if METH_POST
    http-request send-spoe-group pointsman pm-route if METH_POST
    use-server %[var(txn.pm.server)] if { var(txn.pm.server) -m found }
    server r1 10.0.0.1:8000
`, false},
}

func attachedWanted() Wanted {
	return Wanted{
		Version: templates.Version{Major: 3, Minor: 2}, Bufsize: 131072, Pools: []string{"llama"}, Socket: "/run/pm.sock", Queue: 2 * time.Minute,
		Replicas: map[string]string{"10.0.0.1:8000": "llama"}, Ours: templates.AttachedFile,
	}
}

// advise reads a text, with the rendered file if ours is set.
func advise(t testing.TB, text string, ours bool, w Wanted) (out []string) {
	t.Helper()
	files := []File{{"haproxy.cfg", []byte(text)}}
	if ours {
		rendered, _, err := templates.AttachHAProxy(templates.HAProxy{
			Version: w.Version, AgentAddress: "unix:///run/pm.sock", FeedAddress: "127.0.0.1:9901", SPOEConf: "/etc/pointsman/pointsman-spoe.conf",
			Bufsize: 131072, ProcessingTimeout: time.Second, BodyTimeout: 30 * time.Second, ServerTimeout: 600 * time.Second, DefaultPool: "llama",
			Pools: []templates.Pool{{Name: "llama", Models: []string{"m"}, Replicas: []templates.Replica{{Name: "r1", Address: "10.0.0.1:8000"}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range rendered {
			if f.Name == templates.AttachedFile {
				files = append(files, File{f.Name, []byte(f.Text)})
			}
		}
	}
	for _, f := range Advise(files, w) {
		rules.See(f)
		if f.Rule == "" || f.Remedy == "" {
			t.Errorf("incomplete: %+v", f)
		}
		out = append(out, f.String())
	}
	return out
}

// lineOf is the line of the text that has s.
func lineOf(t testing.TB, text, s string) int {
	t.Helper()
	before, _, ok := strings.Cut(text, s)
	if !ok {
		t.Fatalf("no %q in\n%s", s, text)
	}
	return 1 + strings.Count(before, "\n")
}

// TestFaults injects each fault into each configuration that can have it. It is
// reported, at its line, and nothing else is.
func TestFaults(t *testing.T) {
	const (
		send = "    http-request send-spoe-group"
		wait = "    http-request wait-for-body time 30s"
	)
	cut := func(text, from string) (line, rest string) {
		before, after, ok := strings.Cut(text, from)
		if !ok {
			return "", text
		}
		tail, after, _ := strings.Cut(after, "\n")
		return from + tail + "\n", before + after
	}
	drop := func(from string) func(string) string {
		return func(text string) string { _, rest := cut(text, from); return rest }
	}
	after := func(from, mark string) func(string) string {
		return func(text string) string {
			moved, rest := cut(text, from)
			if moved == "" {
				return text
			}
			there, _ := cut(rest, mark)
			return strings.Replace(rest, there, there+moved, 1)
		}
	}
	swap := func(old, by string) func(string) string {
		return func(text string) string { return strings.Replace(text, old, by, 1) }
	}
	ringLine := "    log ring@pointsman-ring len 2048 format raw profile pointsman local0\n"
	for _, c := range []struct {
		name string
		edit func(string) string
		at   string // text of the line that is named
		says string
		most int // configurations that cannot have it
	}{
		{"no send-spoe-group", drop(send), "    filter spoe", "pointsman is never asked: add http-request send-spoe-group", 1},
		{"no wait-for-body", drop(wait), send, "no wait-for-body before send-spoe-group: pointsman sees no body", 1},
		{"wait-for-body too late", after(wait, send), wait, "wait-for-body comes after send-spoe-group", 1},
		{"no rid", drop("    http-request set-var(txn.pm.rid)"), send, "no set-var(txn.pm.rid) before send-spoe-group", 1},
		{"rid too late", after("    http-request set-var(txn.pm.rid)", send), "    http-request set-var(txn.pm.rid)", "set-var(txn.pm.rid) comes after", 1},
		{"no ring", func(s string) string {
			return drop("    log ring@")(s)
		}, " fe", "no \"log ring@pointsman-ring\" in the frontend that leads to", 0},
		{"ring on the wrong frontend", func(s string) string {
			if !strings.Contains(s, ringLine) {
				s = drop("    log ring@")(s)
			} else {
				s = strings.Replace(s, ringLine, "", 1)
			}
			return strings.Replace(s, "    bind :80\n", "    bind :80\n"+ringLine, 1)
		}, " fe", "it is in frontend plain at haproxy.cfg:", 0},
		{"own use_backend first", func(s string) string {
			return strings.Replace(strings.Replace(s, "    use_backend ", "    use_backend old if { path_beg /v1/ }\n    use_backend ", 1), "\nbackend ", "\nbackend old\n    server x 10.9.9.9:1\nbackend ", 1)
		}, "    use_backend old", "takes requests for LLM paths: pointsman's answer is not followed: move it below line", 0},
		{"own use_backend of the same engines first", func(s string) string {
			return strings.Replace(strings.Replace(s, "    use_backend ", "    use_backend old if { hdr(host) ai.example.org }\n    use_backend ", 1), "\nbackend ", "\nbackend old\n    server x 10.0.0.1:8000\nbackend ", 1)
		}, "    use_backend old", "pointsman's answer is not followed", 0},
		{"mode tcp", swap("listen fe\n", "listen fe\n    mode tcp\n"), "    use_backend llama", "mode tcp: HAProxy does not read requests", 2},
		{"dontlog-normal", swap(" fe\n", " fe\n    option dontlog-normal\n"), "    option dontlog-normal", "requests that end well are not reported", 1},
		{"own use-server first", swap("    use-server %[", "    use-server r1 if TRUE\n    use-server %["), "    use-server r1", "overrides it: move it below line", 1},
		{"past the pool", func(s string) string {
			return strings.Replace(strings.Replace(s, "    bind :80\n", "    bind :80\n    use_backend old if { path /x }\n", 1), "\nbackend ", "\nbackend old\n    server x 10.0.0.1:8000\nbackend ", 1)
		}, "    use_backend old", "leads to replicas of pool llama without asking pointsman", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			without := 0
			for _, site := range attachedSites {
				text := c.edit(site.text)
				if text == site.text {
					without++
					continue
				}
				at := fmt.Sprintf("haproxy.cfg:%d: ", lineOf(t, text, c.at))
				if c.at == " fe" {
					at = fmt.Sprintf("haproxy.cfg:%d: ", lineOf(t, text, map[bool]string{true: "listen fe", false: "frontend fe"}[strings.Contains(text, "listen fe")]))
				}
				got := advise(t, text, site.ours, attachedWanted())
				if len(got) == 0 || slices.ContainsFunc(got, func(s string) bool { return !strings.HasPrefix(s, at) || !strings.Contains(s, c.says) }) {
					t.Errorf("%s: %q, want it at %s with %q\n%s", site.name, got, at, c.says, text)
				}
			}
			if without > c.most {
				t.Errorf("%d configurations cannot have it, want at most %d", without, c.most)
			}
		})
	}
	for _, site := range attachedSites {
		if got := advise(t, site.text, site.ours, attachedWanted()); len(got) != 0 {
			t.Errorf("%s: nothing is missing, yet: %q", site.name, got)
		}
	}
}

// TestBlockInTheRedirectFrontend: the question in a frontend that only redirects.
func TestBlockInTheRedirectFrontend(t *testing.T) {
	for _, fe := range []string{"frontend redirects\n    bind :80\n", "frontend redirects\n    bind :80\n    http-request redirect scheme https\n", "listen redirects\n    bind :80\n    redirect scheme https\n"} {
		text := attachedSites[1].text
		from := strings.Index(text, "    filter spoe")
		to := strings.Index(text, "    use_backend %[")
		text = text[:from] + text[to:] + fe + text[from:to]
		got := strings.Join(advise(t, strings.Replace(text, "    use_backend %[var(txn.pm.pool)] if { var(txn.pm.pool) -m found }\n", "", 1), false, attachedWanted()), "\n")
		for _, want := range []string{
			"asks pointsman, but leads to no pool: move the block to frontend fe at haproxy.cfg:9",
			"requests for llama go there without a question",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
		if strings.Contains(fe, "http-request redirect") != strings.Contains(got, "http-request redirect without a condition ends each request") {
			t.Errorf("%q gives\n%s", fe, got)
		}
	}
}

func TestAdvise(t *testing.T) {
	good, want := attachedSites[0].text, attachedWanted()
	for _, c := range []struct{ old, new, say string }{
		{"tune.bufsize 131072", "tune.bufsize 32768", "haproxy.cfg:2: global: tune.bufsize is 32768"},
		{"tune.bufsize 131072", "maxconn 10", "no tune.bufsize"},
		{"log global", "log global\n    log-format '%ci %ST'", "haproxy.cfg:14: frontend fe: the log-format at haproxy.cfg:7 needs nothing of the end"},
		{"option abortonclose", "option abortonclose\n    log-steps request,connect", "log-steps without close"},
		{" profile pointsman", "", "neither a profile"},
		{"use_backend llama", "use_backend web", "never asked"},
		{"option abortonclose", "option abortonclose\n    timeout queue 60s", "timeout queue is 1m0s"},
		{"option abortonclose", "option abortonclose\n    timeout queue 3m\nbackend b\n    timeout queue 5000\ndefaults\n    mode http\n    option abortonclose", "timeout queue is 5s"},
		{"    use_backend llama", "    http-request deny if !{ req.body,json_query('$.model') -m str mine }\n    use_backend llama", "json_query can see another model"},
		{"    use_backend llama", "    acl big req.body,json_query('$.model') -m beg big-\n    use_backend llama", "json_query can see another model"},
		{"# chroot", "\n    chroot", "listen on /elsewhere/run/pm.sock too"},
	} {
		got := advise(t, strings.Replace(good, c.old, c.new, 1), true, want)
		if len(got) != 1 || !strings.Contains(got[0], c.say) {
			t.Errorf("%q for %q gives %q, want one about %q", c.new, c.old, got, c.say)
		}
	}
	if got := advise(t, strings.Replace(attachedSites[1].text, "option abortonclose", "option httplog", 1), false, want); len(got) != 1 || !strings.HasPrefix(got[0], "haproxy.cfg: defaults base: no \"option abortonclose\"") {
		t.Errorf("without abortonclose: %q", got)
	}
	for _, ends := range []string{"log-format '%ci %ST %B'", "log-format '%ci %ST'\n    log-steps close", "log-format '%ci %{+Q}tsc'"} {
		if got := advise(t, strings.Replace(good, "log global", "log global\n    "+ends, 1), true, want); len(got) != 0 {
			t.Errorf("%s: %q", ends, got)
		}
	}
	want.Inside = []string{"/elsewhere/run/pm.sock"}
	if got := advise(t, strings.Replace(good, "# chroot", "\n    chroot", 1), true, want); len(got) != 0 {
		t.Errorf("the agent listens inside the chroot, yet: %q", got)
	}
	if got := advise(t, "", false, want); len(got) != 2 {
		t.Errorf("an empty file gives %d pieces of advice: %q", len(got), got)
	}
}

// TestAdviseOwnBackends: what was to be pasted into backends of the user's.
func TestAdviseOwnBackends(t *testing.T) {
	want := attachedWanted()
	want.Own = []string{"llama"}
	good := attachedSites[2].text
	at := strings.Index(good, "backend llama")
	for _, c := range []struct{ old, new, say string }{
		{"    use-server %[var(txn.pm.server)] if { var(txn.pm.server) -m found }\n", "", "decisions are not followed"},
		{"    option http-server-close\n", "", `no "option http-server-close"`},
		{"    option http-server-close\n", "    option httpclose\n", ""},
		{"    filter spoe engine pointsman config pointsman-spoe.conf\n", "", "send-spoe-group without its filter: add filter spoe engine pointsman config /etc/pointsman/pointsman-spoe.conf"},
		{"    option http-server-close\n", "    retry-on conn-failure empty-response\n", `no "option http-server-close"`},
	} {
		got := advise(t, strings.Replace(good, c.old, c.new, 1), false, want)
		if c.say == "" && len(got) > 0 || c.say != "" && (len(got) != 1 || !strings.Contains(got[0], c.say)) {
			t.Errorf("%q gives %q, want %q", c.new, got, c.say)
		}
	}
	if got := advise(t, good[:at], false, want); len(got) == 0 || !strings.Contains(got[0], "no backend llama") {
		t.Errorf("without the backend: %q", got)
	}
}

// TestMeant: a rule of the user's that takes some requests before pointsman's is a
// warning, for it may be meant so.
func TestMeant(t *testing.T) {
	for old, line := range map[string]string{
		"    use_backend llama if { path_beg /v1/ }": "    use_backend canary if { path_beg /v1/ } { req.hdr(x-canary) -m found }\n    use_backend llama if { path_beg /v1/ }",
		"backend llama\n": "backend llama\n    use-server r1 if { req.hdr(x-first) -m found }\n",
	} {
		site := attachedSites[0]
		if strings.HasPrefix(old, "backend") {
			site = attachedSites[2]
		}
		got := Advise([]File{{"haproxy.cfg", []byte(strings.Replace(site.text, old, line, 1))}}, attachedWanted())
		for _, f := range got {
			rules.See(f)
		}
		if site.ours { // the file that is rendered is not among them
			got = slices.DeleteFunc(got, func(f advice.Finding) bool { return f.Rule != "own-route-first" })
		}
		if len(got) != 1 || got[0].Level != advice.Warning || !strings.Contains(got[0].Remedy, "unless that is meant") {
			t.Errorf("%q gives %v", line, got)
		}
	}
}

func FuzzAdvise(f *testing.F) {
	f.Add([]byte("global\n chroot\n tune.bufsize x\nfrontend\n use_backend\n log ring@pointsman-ring\n # \" '"))
	for _, s := range attachedSites {
		f.Add([]byte(s.text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		files := []File{{"a", b}, {"b", b}}
		Advise(files, Wanted{Pools: []string{"llama"}})
		Lint(files, Release{}, nil)
		ParseRelease(string(b))
	})
}
