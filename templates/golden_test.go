package templates_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/templates"
	"pointsman/test/proxies"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// example is a description that uses everything.
func example(v templates.Version) templates.HAProxy {
	timeout := time.Second
	if !v.AtLeast(3, 1) {
		timeout = 250 * time.Millisecond
	}
	return templates.HAProxy{
		Version: v,
		Bind:    "*:8080",
		Bufsize: 256 << 10, ProcessingTimeout: timeout,
		AgentAddress: "unix:///run/pointsman/spoe.sock",
		FeedAddress:  "tcp://127.0.0.1:9901",
		RuntimeAPI:   "unix:///run/haproxy/admin.sock",
		User:         "haproxy",
		SPOEConf:     "/etc/haproxy/pointsman-spoe.conf",
		Pools: []templates.Pool{
			{Name: "llama", Models: []string{"my-llama", "meta-llama/Llama-3.1-8B-Instruct"}, Replicas: []templates.Replica{
				{Name: "r1", Address: "10.0.0.1:8000"},
				{Name: "r2", Address: "10.0.0.2:8000", Weight: 10, MaxConn: 64},
				{Name: "r3", Address: "[fd00::3]:8000"},
			}},
			{Name: "qwen", Models: []string{"qwen3", "it's a model"}, HealthPath: "none", Replicas: []templates.Replica{
				{Name: "q1", Address: "localhost:8001"},
			}},
			{Name: "own", Models: []string{"own-model"}},
		},
	}
}

// variants are the examples of one version by name: what is rendered, and the
// whole configuration, with our lines pasted, that HAProxy is to accept.
func variants(t *testing.T, v templates.Version) map[string][]templates.File {
	t.Helper()
	out := map[string][]templates.File{}
	whole, err := templates.RenderHAProxy(example(v))
	if err != nil {
		t.Fatal(err)
	}
	out["whole"] = whole
	kept := example(v)
	kept.RetrySent, kept.Budgets, kept.Prefills, kept.ListModels = true, true, true, true
	if out["kept"], err = templates.RenderHAProxy(kept); err != nil {
		t.Fatal(err)
	}
	for name, pools := range map[string]int{"one": 1, "several": 3} {
		o := example(v)
		o.Pools, o.ListModels = o.Pools[:pools], pools > 1
		files, paste, err := templates.AttachHAProxy(o)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = append(files, templates.File{Name: "paste.txt", Text: pasted(paste)})
	}
	return out
}

func pasted(paste []templates.Snippet) string {
	var b strings.Builder
	for _, s := range paste {
		fmt.Fprintf(&b, "==> %s, optional: %v\n%s", s.Where, s.Optional, s.Text)
	}
	return b.String()
}

// TestGolden shows each change of the rendered text to a reader. -update
// rewrites the files.
func TestGolden(t *testing.T) {
	for _, v := range []templates.Version{{2, 6}, {3, 0}, {3, 2}, {3, 4}} {
		all := variants(t, v)
		if v.AtLeast(3, 4) {
			o := example(v)
			o.LargeBufsize = 4 << 20
			large, err := templates.RenderHAProxy(o)
			if err != nil {
				t.Fatal(err)
			}
			all["large"] = large
		}
		for variant, files := range all {
			for _, f := range files {
				path := filepath.Join("testdata", v.String(), variant, f.Name)
				if *update {
					os.MkdirAll(filepath.Dir(path), 0o755)
					if err := os.WriteFile(path, []byte(f.Text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Error(err)
				} else if string(want) != f.Text {
					t.Errorf("%s is not what is rendered; go test -update shows the difference in git", path)
				}
			}
		}
	}
}

// TestText holds what makes the text fit to read and to load.
func TestText(t *testing.T) {
	for _, v := range []templates.Version{{2, 6}, {3, 0}, {3, 2}, {3, 4}} {
		for variant, files := range variants(t, v) {
			for _, f := range files {
				where := fmt.Sprintf("%v, %s, %s", v, variant, f.Name)
				if !strings.HasSuffix(f.Text, "\n") || strings.HasSuffix(f.Text, "\n\n") {
					t.Errorf("%s does not end in one newline", where)
				}
				if strings.Contains(f.Text, "\n\n\n") || strings.Contains(f.Text, "<no value>") || strings.Contains(f.Text, "\t") {
					t.Errorf("%s has a double empty line, a tab or a hole:\n%s", where, f.Text)
				}
				for line := range strings.Lines(f.Text) {
					// HAProxy refuses lines of 2048 bytes.
					if len(line) > 1500 || strings.TrimRight(line, " \n") != strings.TrimRight(line, "\n") {
						t.Errorf("%s: line too long or with blanks at its end: %q", where, line)
					}
					if strings.HasPrefix(strings.TrimSpace(line), "#") && len(line) > 90 {
						t.Errorf("%s: comment too wide: %s", where, line)
					}
				}
			}
		}
	}
}

// TestAccepted has every HAProxy at hand check what is rendered for it, and
// asks that it has nothing to warn of.
func TestAccepted(t *testing.T) {
	for _, bin := range proxies.HAProxies(t) {
		v, err := templates.ParseVersion(bin.Version)
		if err != nil {
			t.Fatal(err)
		}
		check := func(t *testing.T, files ...templates.File) {
			t.Helper()
			dir := t.TempDir()
			args := []string{"-c"}
			for _, f := range files {
				if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Text), 0o644); err != nil {
					t.Fatal(err)
				}
				if strings.HasSuffix(f.Name, ".cfg") {
					args = append(args, "-f", f.Name)
				}
			}
			cmd := bin.Command(args...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Contains(string(out), "WARNING") {
				t.Errorf("HAProxy %s: %v\n%s", bin.Version, err, out)
				for _, f := range files {
					t.Logf("%s:\n%s", f.Name, f.Text)
				}
			}
		}
		o := example(v)
		o.SPOEConf = "./" + templates.SPOEFile
		o.User = "" // a check by a plain user cannot change it
		t.Run(bin.Version+"/whole", func(t *testing.T) {
			files, err := templates.RenderHAProxy(o)
			if err != nil {
				t.Fatal(err)
			}
			check(t, files...)
		})
		for _, live := range []bool{false, true} {
			for _, pools := range []int{1, 2, 3} {
				t.Run(fmt.Sprintf("%s/attached/%d/%v", bin.Version, pools, live), func(t *testing.T) {
					o := o
					o.Pools = o.Pools[:pools]
					files, paste, err := templates.AttachHAProxy(o)
					if err != nil {
						t.Fatal(err)
					}
					// The third pool's servers live in the operator's own backend.
					user := userConfig("127.0.0.1:8080", "/run/haproxy/admin.sock", paste, live)
					for _, s := range paste {
						if s.Where == "backend own" {
							user += "\nbackend own\n" + s.Text + "    server mine 127.0.0.1:8000\n"
						}
					}
					check(t, append([]templates.File{{Name: "a-user.cfg", Text: user}}, files...)...)
				})
			}
		}
	}
}

// TestOwnLogFormatStays: attached without the optional lines, HAProxy writes
// the operator's own log as ever, from 3.2 on even with a format of its own.
func TestOwnLogFormatStays(t *testing.T) {
	for _, bin := range proxies.HAProxies(t) {
		v, _ := templates.ParseVersion(bin.Version)
		if !v.AtLeast(3, 2) {
			continue // the feed shares the format of the frontend
		}
		t.Run(bin.Version, func(t *testing.T) {
			r := newReplica(t, "r1")
			o := example(v)
			bind := fmt.Sprintf("127.0.0.1:%d", proxies.FreePort(t))
			o.Pools = []templates.Pool{{Name: "llama", HealthPath: "none", Replicas: []templates.Replica{{Name: "r1", Address: r.addr()}}}}
			o.SPOEConf = "./" + templates.SPOEFile
			files, paste, err := templates.AttachHAProxy(o)
			if err != nil {
				t.Fatal(err)
			}
			user := strings.Replace(userConfig(bind, "unix@./api.sock", paste, false), "option httplog", `log-format "OWN %HM %HU %ST"`, 1)
			g := &rig{T: t, url: "http://" + bind}
			g.proc = proxies.Start(t, bin, user, proxies.File(files[0]), proxies.File(files[1]))
			for range 3 {
				if res, body := g.post(); res.StatusCode != 200 {
					t.Fatalf("%d %s", res.StatusCode, body)
				}
			}
			want := strings.Repeat("OWN POST /v1/chat/completions 200\n", 3)
			eventually(t, "three lines in the operator's own log", func() bool { return strings.Count(g.proc.Log(), "OWN ") >= 3 })
			if got := ownLines(g.proc.Log()); got != want {
				t.Errorf("own log:\n%s", got)
			}
		})
	}
}

// ownLines are the lines of a log but those about HAProxy's own state.
func ownLines(log string) string {
	var b strings.Builder
	for line := range strings.Lines(log) {
		switch word, _, _ := strings.Cut(line, " "); word {
		case "Server", "backend", "Proxy", "[NOTICE]", "[WARNING]", "[ALERT]":
		default:
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestRefused: everything that is wrong is named, all at once.
func TestRefused(t *testing.T) {
	long := strings.Repeat("x", 300)
	_, err := templates.RenderHAProxy(templates.HAProxy{
		Version: templates.Version{Major: 2, Minor: 4}, Bind: "*:80\nuser root", AgentAddress: "unix://run/x", FeedAddress: "nowhere",
		SPOEConf: "/etc/a b", RuntimeAPI: "x", User: "a b", Bufsize: 99, LargeBufsize: 1, ServerTimeout: time.Microsecond, BodyTimeout: -1,
		ProcessingTimeout: 48 * time.Hour, DefaultPool: "nope",
		Pools: []templates.Pool{
			{Name: "a b"}, {Name: "p", Models: []string{"", long, "m\nuser root"}, HealthPath: "health"}, {Name: "p"}, {Name: templates.AgentBackend},
			{Name: "q", Models: []string{"same"}, Replicas: []templates.Replica{{Name: "", Address: "h:1"}, {Name: "r", Address: "h"}, {Name: "r", Address: "h:1 check", Weight: 999, MaxConn: -1}}},
			{Name: "s", Models: []string{"same"}},
		},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"HAProxy 2.4 is too old; want 2.6", "bind ", "agent address: ", "feed address: ", "path of pointsman-spoe.conf", "runtime API address: ", `user "a b"`,
		"buffer size 99", "large buffers need HAProxy 3.4", "server timeout", "body timeout", "processing timeout", `default pool "nope"`,
		`pool "a b"`, "pool p: health path", "pool p: model \"\"", "pool p: model \"xxx", `pool p: model "m\nuser root"`, "pool p: named twice", "taken by a section of ours",
		`pool q: replica ""`, `address "h"`, "replica r: named twice", "weight 999", "maxconn -1", `address "h:1 check"`, `pool s: model "same" belongs to pool q`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %q in:\n%v", want, err)
		}
	}
	for v, refused := range map[templates.Version]bool{{Major: 2, Minor: 6}: false, {Major: 3, Minor: 0}: true, {Major: 3, Minor: 1}: true, {Major: 3, Minor: 2}: false} {
		o := example(v)
		o.FeedAddress = "unix:///run/pointsman/feed.sock"
		if _, err := templates.RenderHAProxy(o); (err != nil) != refused || refused && !strings.Contains(err.Error(), "never connects again") {
			t.Errorf("%v with a feed on a unix socket: %v", v, err)
		}
	}
	if _, _, err := templates.AttachHAProxy(templates.HAProxy{}); err == nil || !strings.Contains(err.Error(), "no pools") {
		t.Errorf("an empty description: %v", err)
	}
}
