package templates_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/templates"
	"pointsman/test/proxies"
)

// nginxExample is a description that uses everything.
func nginxExample() templates.Nginx {
	return templates.Nginx{
		Bind:       ":8080",
		BodyBuffer: 1 << 20, ProcessingTimeout: 100 * time.Millisecond,
		AgentAddress: "unix:///run/pointsman/nginx.sock",
		FeedAddress:  "tcp://127.0.0.1:9901",
		Dir:          "/etc/pointsman",
		Pools: []templates.Pool{
			{Name: "llama", Replicas: []templates.Replica{
				{Name: "r1", Address: "10.0.0.1:8000"}, {Name: "r2", Address: "10.0.0.2:8000", Weight: 10}, {Name: "r3", Address: "[fd00::3]:8000"},
				{Name: "r4", Address: "10.0.0.4:8000"}, {Name: "r5", Address: "10.0.0.5:8000"},
			}},
			{Name: "found", Replicas: []templates.Replica{{Name: "dns:1", Address: "localhost:8001"}}},
			{Name: "own"},
		},
	}
}

// nginxVariants are what is rendered, by name.
func nginxVariants(t *testing.T) map[string][]templates.File {
	t.Helper()
	out := map[string][]templates.File{}
	whole, err := templates.RenderNginx(nginxExample())
	if err != nil {
		t.Fatal(err)
	}
	out["whole"] = whole
	o := nginxExample()
	o.AgentAddress, o.RetrySent, o.DefaultPool, o.ProcessingTimeout = "127.0.0.1:9902", true, "own", 1500*time.Millisecond
	o.Pools[0].AdmissionHeaders, o.Budgets, o.Prefills = true, true, true
	files, paste, err := templates.AttachNginx(o)
	if err != nil {
		t.Fatal(err)
	}
	out["attached"] = append(files, templates.File{Name: "paste.txt", Text: pasted(paste)})
	return out
}

// TestNginxGolden is TestGolden for nginx.
func TestNginxGolden(t *testing.T) {
	for variant, files := range nginxVariants(t) {
		for _, f := range files {
			path := filepath.Join("testdata", "nginx", variant, f.Name)
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
			if strings.Contains(f.Text, "\n\n\n") || strings.Contains(f.Text, "<no value>") || strings.Contains(f.Text, "\t") || !strings.HasSuffix(f.Text, "\n") || strings.HasSuffix(f.Text, "\n\n") {
				t.Errorf("%s has a double empty line, a tab, a hole or a ragged end:\n%s", path, f.Text)
			}
			for line := range strings.Lines(f.Text) {
				if strings.TrimRight(line, " \n") != strings.TrimRight(line, "\n") || strings.HasPrefix(strings.TrimSpace(line), "#") && len(line) > 100 {
					t.Errorf("%s: too wide, or blanks at the end: %q", path, line)
				}
			}
		}
	}
}

// TestNginxAccepted has every nginx at hand check what is rendered, and asks
// that it has nothing to warn of.
func TestNginxAccepted(t *testing.T) {
	for _, bin := range proxies.Nginxes(t) {
		t.Run(bin.Version, func(t *testing.T) {
			o := nginxExample()
			o.Bind = fmt.Sprint("127.0.0.1:", proxies.FreePort(t))
			whole, err := templates.RenderNginx(o)
			if err != nil {
				t.Fatal(err)
			}
			accepted(t, bin, whole[0].Text)

			o.Dir = t.TempDir()
			files, paste, err := templates.AttachNginx(o)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				if err := os.WriteFile(filepath.Join(o.Dir, f.Name), []byte(f.Text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			text := map[string]string{}
			for _, s := range paste {
				text[s.Where] += s.Text
			}
			accepted(t, bin, fmt.Sprintf("pid /run/nginx.pid;\nevents {}\nhttp {\n%s\nserver {\n listen %s;\n%s\nlocation = /v1/chat/completions {\n%s}\n}\n}\n",
				text["http"], o.Bind, text["server"], text["location"]))
		})
	}
}

func accepted(t *testing.T, bin proxies.Binary, conf string) {
	t.Helper()
	out, err := proxies.CheckNginx(t, bin, conf)
	for line := range strings.Lines(out) {
		// What the machine grants is no matter of the configuration.
		if strings.Contains(line, "[warn]") && !strings.Contains(line, "open file resource limit") || strings.Contains(line, "[emerg]") {
			t.Errorf("nginx says %s", line)
		}
	}
	if err != nil {
		t.Errorf("%v\n%s\n%s", err, out, conf)
	}
}

// TestNginxRefused: everything that is wrong is named, all at once.
func TestNginxRefused(t *testing.T) {
	_, err := templates.RenderNginx(templates.Nginx{
		Bind: "8080; user root", AgentAddress: "unix:///run/$x", FeedAddress: "unix:///run/feed", Folder: "relative", BodyBuffer: 1,
		ProcessingTimeout: time.Nanosecond, ServerTimeout: 48 * time.Hour, DefaultPool: "nope",
		Pools: []templates.Pool{
			{Name: "a:b"}, {Name: "p", Replicas: []templates.Replica{{Name: "r", Address: "h:1; x"}, {Name: "R1", Address: "h:1"}, {Name: "r1", Address: "h:2"}}}, {Name: "P"},
		},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"bind ", "agent address", "feed address", "folder ", "body buffer 1", "processing timeout", "server timeout", `default pool "nope"`,
		"no replicas that nginx could balance over", "pool a:b: nginx takes", `address "h:1; x"`, "pm~p~R1 and pm~p~r1", "pm~P",
	} {
		if !strings.Contains(err.Error(), want) && !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(want)) {
			t.Errorf("no word of %q in:\n%v", want, err)
		}
	}
	if _, _, err := templates.AttachNginx(templates.Nginx{}); err == nil || !strings.Contains(err.Error(), "no pools") || !strings.Contains(err.Error(), "folder of the files") {
		t.Errorf("an empty description: %v", err)
	}
}
