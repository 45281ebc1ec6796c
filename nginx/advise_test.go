package nginx

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pointsman/advice"
	"pointsman/templates"
)

// attached is a user's configuration, to which the lines were added as printed.
const attached = `user www-data;
events { worker_connections 768; }
http {
    access_log /var/log/nginx/access.log;
    map $http_upgrade $connection_upgrade { default upgrade; '' close; }
    include DIR/nginx-http.conf;
    upstream vllm { server 10.0.0.1:8000; }
    server { listen 80; location / { root /var/www; } }
    server {
        listen 443; # ssl
        client_max_body_size 50m;
        include DIR/nginx-server.conf;
        location /v1/ {
            proxy_set_header Host $host;
            proxy_read_timeout 3600s;
            set $pm_own vllm; try_files /.pointsman @pm_ask;
        }
    }
}
`

// site lays out a configuration, with edits as pairs of old and new.
func site(t *testing.T, edits ...string) string {
	t.Helper()
	dir := t.TempDir()
	files, _, err := templates.AttachNginx(templates.Nginx{
		AgentAddress: "unix:///run/pointsman/nginx.sock", FeedAddress: "127.0.0.1:9901", Dir: dir, BodyBuffer: 1 << 20, ProcessingTimeout: time.Second,
		Pools: []templates.Pool{{Name: "llama", Replicas: []templates.Replica{{Name: "r1", Address: "10.0.0.1:8000"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := attached
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(text, edits[i]) {
			t.Fatalf("no %q in the configuration", edits[i])
		}
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	text = strings.ReplaceAll(text, "DIR", dir)
	for _, f := range append(files, templates.File{Name: "nginx.conf", Text: text}) {
		if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAdvise(t *testing.T) {
	for name, c := range map[string]struct {
		edits []string
		want  []string
	}{
		"nothing missing": {},
		"not attached": {
			[]string{"include DIR/nginx-http.conf;", "", "include DIR/nginx-server.conf;", "", "set $pm_own vllm; try_files /.pointsman @pm_ask;", "proxy_pass http://vllm;"},
			[]string{"http: nginx-http.conf is not included", "server: nginx-server.conf is not included", "location: none leads to @pm_ask"},
		},
		"rules of the server that the location overrides": {
			[]string{"listen 443;", "listen 443; deny all; auth_basic x;", "proxy_read_timeout 3600s;", "allow 10.0.0.0/8; deny all; auth_basic off;"},
			[]string{
				"nginx.conf:10: location /v1/: this deny applies in @pm_target of nginx-server.conf too, whose requests this location has let in by rules of its own: move it into your other locations, or put `allow all;` into those of nginx-server.conf; `pointsman attach nginx` does so",
				"nginx.conf:10: location /v1/: this auth_basic applies in @pm_target of nginx-server.conf too",
			},
		},
		"rules of the server":   {[]string{"listen 443;", "listen 443; allow 10.0.0.0/8; deny all; auth_request /auth;"}, nil},
		"rules of the location": {[]string{"proxy_read_timeout 3600s;", "allow 10.0.0.0/8; deny all;"}, nil},
		"a server's own log": {
			[]string{"listen 443;", "listen 443; access_log /var/log/nginx/llm.log;"},
			[]string{"nginx.conf:10: this access_log replaces the feed's"},
		},
		"an error log without its tag": {
			[]string{"listen 443;", "listen 443; error_log syslog:server=127.0.0.1:9901,nohostname;"},
			[]string{"nginx.conf:10: lines of this error_log are ignored: they need tag="},
		},
		"a location's own log": {
			[]string{"proxy_read_timeout 3600s;", "access_log off;"},
			[]string{"nginx.conf:15: requests that pointsman is asked about are not logged here"},
		},
		"no limit of bodies": {
			[]string{"client_max_body_size 50m;", ""},
			[]string{"nginx.conf:9: no client_max_body_size"},
		},
		"a location's limit of bodies": {
			[]string{"client_max_body_size 50m;", "", "proxy_read_timeout 3600s;", "client_max_body_size 50m;"},
			[]string{"nginx.conf:15: this client_max_body_size does not apply to chunked bodies"},
		},
		"headers": {
			[]string{"proxy_set_header Host $host;", "proxy_set_header Authorization 'Bearer x'; proxy_set_header host x; add_header Access-Control-Allow-Origin *;"},
			[]string{"nginx.conf:14: proxy_set_header Authorization has no effect", "nginx.conf:14: add_header Access-Control-Allow-Origin has no effect"},
		},
		"ifs": {
			[]string{"proxy_read_timeout 3600s;", "if ($x) { return 401; } if ($y) { set $z 1; }"},
			[]string{"nginx.conf:15: where this if matches, nginx ignores try_files"},
		},
		"pm_own misspelt": {
			[]string{"set $pm_own vllm", "set $pm_own vlm"},
			[]string{"nginx.conf:16: location /v1/: $pm_own is vlm, but there is no upstream of this name: when the agent is down, every request gets 502: name one of your upstreams: vllm"},
		},
		"pm_own with http": {
			[]string{"set $pm_own vllm", "set $pm_own http://vllm"},
			[]string{"nginx.conf:16: location /v1/: $pm_own is http://vllm: nginx puts http:// before it"},
		},
		"another name for pm_own": {
			[]string{"set $pm_own vllm", "set $pm_onw vllm"},
			[]string{"nginx.conf:16: location /v1/: set $pm_onw: pointsman has no such variable"},
		},
		"pm_own is an address": {
			[]string{"set $pm_own vllm", "set $pm_own 10.0.0.1:8000"}, nil,
		},
		"the wrong server": {
			[]string{"listen 80;", "listen 80; include DIR/nginx-server.conf;", "        include DIR/nginx-server.conf;\n        location /v1", "        location /v1"},
			[]string{"nginx.conf:12: location /v1/: nginx-server.conf is included in the server at "},
		},
		"a question by hand": {
			[]string{"try_files /.pointsman @pm_ask;", "proxy_pass http://pointsman_agent; proxy_request_buffering off; access_log off;"},
			[]string{"nginx.conf:16: proxy_request_buffering is off", "nginx.conf:16: this access_log replaces", "are not logged here", "no client_body_buffer_size"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(site(t, c.edits...), "nginx.conf")
			got, err := Advise(path, "unix:///run/pointsman/nginx.sock", "tcp://127.0.0.1:9901")
			if err != nil {
				t.Fatal(err)
			}
			all := said(got)
			if len(got) != len(c.want) {
				t.Errorf("got %d pieces of advice, want %d:\n%s", len(got), len(c.want), all)
			}
			for _, w := range c.want {
				if !strings.Contains(all, w) {
					t.Errorf("no %q in\n%s", w, all)
				}
			}
		})
	}
}

// said is the text of findings.
func said(list []advice.Finding) string {
	var all strings.Builder
	for _, f := range list {
		rules.See(f)
		fmt.Fprintln(&all, f)
	}
	return all.String()
}

// TestAdviseComparesAddresses: files that lead elsewhere than where the agent listens are
// reported, unless they may be right.
func TestAdviseComparesAddresses(t *testing.T) {
	path := filepath.Join(site(t), "nginx.conf")
	for _, c := range []struct{ agent, feed, want string }{
		{"unix:///run/pointsman/nginx.sock", "127.0.0.1:9901", ""},
		{"unix:///tmp/nginx.sock", "127.0.0.1:9901", "questions go to unix:/run/pointsman/nginx.sock, and the agent listens on unix:///tmp/nginx.sock (listen.nginx): it is not asked: attach or render again"},
		{"127.0.0.1:9902", "127.0.0.1:9901", "the agent listens on 127.0.0.1:9902"},
		{"", "127.0.0.1:9903", "log lines go to 127.0.0.1:9901, and the agent listens on 127.0.0.1:9903 (listen.feed): outcomes are not reported: attach or render again"},
	} {
		got, err := Advise(path, c.agent, c.feed)
		if err != nil {
			t.Fatal(err)
		}
		all := said(got)
		if (len(got) > 0) != (c.want != "") || !strings.Contains(all, c.want) {
			t.Errorf("%+v gives\n%s", c, all)
		}
	}
	port := site(t)
	file := filepath.Join(port, "nginx-http.conf")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(b), "unix:/run/pointsman/nginx.sock max", "127.0.0.1:9902 max", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for agent, want := range map[string]int{"0.0.0.0:9902": 0, "tcp://127.0.0.1:9903": 1, "unix:///run/pointsman/nginx.sock": 1} {
		if got, err := Advise(filepath.Join(port, "nginx.conf"), agent, "127.0.0.1:9901"); err != nil || len(got) != want {
			t.Errorf("%s: %v %v", agent, got, err)
		}
	}
}

// What is kept for the replica is no loss.
func TestAdviseKnowsTheHeadersFile(t *testing.T) {
	dir := site(t, "proxy_set_header Host $host;", "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;")
	path := filepath.Join(dir, "nginx.conf")
	if got, err := Advise(path, "", "127.0.0.1:9901"); err != nil || len(got) != 1 {
		t.Errorf("%v %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "nginx-headers.conf"), []byte("proxy_set_header x-forwarded-for $proxy_add_x_forwarded_for;\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Advise(path, "", "127.0.0.1:9901"); err != nil || len(got) != 0 {
		t.Errorf("%v %v", got, err)
	}
}

func TestBrokenConfigurations(t *testing.T) {
	for text, want := range map[string]string{
		"http {":                   "the file ends within",
		"}":                        "unexpected }",
		"a; }":                     "unexpected }",
		"{}":                       "unexpected {",
		"a":                        "the file ends within",
		"include nowhere.conf;":    "does not exist",
		"include nginx.conf;":      "too many includes",
		strings.Repeat("a {", 100): "too deep",
	} {
		path := filepath.Join(t.TempDir(), "nginx.conf")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Advise(path, "", "x:1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %s", text, err, want)
		}
	}
}

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nginx.conf")
	text := "a 'b; c' \"d\\\"e\" f\\;g; # x {\nh ${i} {\n j;\n}\nk_by_lua_block {\n if x then { } end }\nl;"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	root.Walk(func(d *Directive) { got = append(got, strings.Join(append([]string{d.Name}, d.Args...), "|")) })
	if want := `a|b; c|d"e|f\;g h|${i} j k_by_lua_block l`; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", strings.Join(got, " "), want)
	}
	if last := root.Block[len(root.Block)-1]; last.Line != 7 {
		t.Errorf("the last one is said to be on line %d", last.Line)
	}
}

func FuzzTokens(f *testing.F) {
	f.Add("http { server { location ~ ^ { a \"b\" '${c}'; } } }")
	f.Add("x_by_lua_block { { } ")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "include") {
			return // it would read whatever is there
		}
		root := &Directive{}
		if err := (&loader{}).block(&tokens{text: text, line: 1}, "f", root, 0, 0); err != nil {
			return
		}
		root.Walk(func(d *Directive) {
			// The text of each directive, read by itself, is that directive.
			again := &Directive{}
			part := text[d.From:d.To]
			if err := (&loader{}).block(&tokens{text: part, line: d.Line}, "f", again, 0, 0); err != nil || len(again.Block) != 1 {
				t.Fatalf("%q: %v", part, err)
			}
			e := again.Block[0]
			if e.Name != d.Name || !slices.Equal(e.Args, d.Args) || len(e.Block) != len(d.Block) {
				t.Fatalf("%q is %q %q, was %q %q", part, e.Name, e.Args, d.Name, d.Args)
			}
		})
	})
}
