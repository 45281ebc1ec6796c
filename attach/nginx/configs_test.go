package nginx

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"pointsman/attach"
	"pointsman/config"
	"pointsman/decider"
	"pointsman/decider/policy"
	ngx "pointsman/nginx"
	"pointsman/resolve"
	"pointsman/test/proxies"
)

const configurations = "../testdata/nginx"

// backends are named where a configuration does not say by itself which of its
// upstreams are LLM engines.
var backends = map[string][]string{"websocket-cors": {"ollama"}, "vllm-docs": {"backend"}, "resolver": {"127.0.0.1:8000"}}

// lay copies a configuration to a folder, with its blanks filled in.
func lay(t testing.TB, name, dir string) (main string) {
	t.Helper()
	from := filepath.Join(configurations, name)
	fill := strings.NewReplacer("@front@", "8080", "@front2@", "8081", "@front3@", "8082", "@web@", "3000",
		"@e1@", "8000", "@e2@", "30000", "@t1@", "8443", "@t2@", "8444", "@dir@", dir, "/run/nginx.pid", dir+"/nginx.pid", "/var/log/nginx/", dir+"/")
	put(t, filepath.Join(dir, "cert.pem"), certificate(t))
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			return link(path, dir+strings.TrimPrefix(path, from))
		}
		text, err := os.ReadFile(path)
		put(t, dir+strings.TrimPrefix(path, from), fill.Replace(string(text)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "nginx.conf")
}

// link copies a symbolic link.
func link(from, to string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.Symlink(target, to)
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// certificate is one for localhost, with its key.
func certificate(t testing.TB) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &c, &c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	own, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) + string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: own}))
}

// policies are enough for configurations that name none.
var policies = policy.Table{policy.Plain("least_work", func() decider.Policy { return policy.LeastWork{} })}

// options attach to a configuration in a folder.
func options(main, dir string, backends ...string) Options {
	return Options{
		Main: main, Backends: backends, Config: filepath.Join(dir, "out", "pointsman.yaml"), Out: filepath.Join(dir, "out"),
		AccessLog: filepath.Join(dir, "default.log"), ErrorLog: filepath.Join(dir, "default-error.log"),
		Resolve: func(name string, text []byte) (*resolve.Config, error) {
			o := resolve.Options{Policies: policies}
			c, err := config.Parse(name, text, func(string) string { return "" }, o.Checks())
			if err != nil {
				return nil, err
			}
			return resolve.Resolve(c, o)
		},
	}
}

// content is all of the files in a folder but the log files that nginx -t opens.
func content(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == "out" {
			return fs.SkipDir
		}
		if d.IsDir() || strings.HasSuffix(path, ".log") || strings.HasSuffix(path, ".pid") {
			return nil
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(&b, "==> %s\n%s", path, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Each configuration is attached to and detached from, with every nginx at hand:
// it accepts the result, a second run changes nothing, and detaching restores
// every byte.
func TestConfigurations(t *testing.T) {
	entries, err := os.ReadDir(configurations)
	if err != nil || len(entries) < 20 {
		t.Fatal(len(entries), err)
	}
	for _, bin := range proxies.Nginxes(t) {
		for _, e := range entries {
			t.Run(bin.Version+"/"+e.Name(), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				run := func(args ...string) (string, error) {
					out, err := bin.Command(append([]string{"-p", dir, "-e", "stderr"}, args...)...).CombinedOutput()
					return string(out), err
				}
				o := options(lay(t, e.Name(), dir), dir, backends[e.Name()]...)
				before := content(t, dir)
				if out, err := run("-t", "-c", o.Main); err != nil {
					t.Fatalf("as it is: %v\n%s", err, out)
				}
				r := attachAll(t, o, run)
				if !r.Changed() {
					t.Fatal("changes nothing")
				}
				if out, err := run("-t", "-c", o.Main); err != nil || strings.Contains(out, "[warn]") && !strings.Contains(out, "http2") {
					t.Fatalf("attached: %v\n%s\n%s", err, out, content(t, dir))
				}
				if again, err := Attach(o); err != nil || again.Changed() {
					t.Errorf("a second time: %v, %+v", err, again)
				}
				found, err := ngx.Advise(o.Main, "", "127.0.0.1:9901")
				if err != nil {
					t.Error(err)
				}
				for _, f := range found {
					if f.Problem != "no client_max_body_size: nginx refuses bodies of more than 1 MB" { // which is so without us
						t.Errorf("check: %+v", f)
					}
				}
				d, err := Detach(o)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Verify(run); err != nil {
					t.Error(err)
				}
				if _, err := attach.Write(d.Changes, filepath.Join(dir, "out", "backup"), "2", nil); err != nil {
					t.Fatal(err)
				}
				if after := content(t, dir); after != before {
					t.Errorf("before\n%s\nafter\n%s", before, after)
				}
				if left, _ := filepath.Glob(filepath.Join(dir, "out", "*.conf")); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
			})
		}
	}
}

// attachAll attaches and has nginx check the result before it is written.
func attachAll(t testing.TB, o Options, run func(...string) (string, error)) *Result {
	t.Helper()
	r, err := Attach(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Verify(run); err != nil {
		t.Fatal(err)
	}
	if _, err := attach.Write(r.Changes, filepath.Join(o.Out, "backup"), "1", nil); err != nil {
		t.Fatal(err)
	}
	return r
}

// What cannot be attached to is refused by file, line and remedy, and nothing is
// guessed.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"doubt":     {`upstream a { server h:1; } server { location / { proxy_pass http://a; proxy_buffering off; proxy_read_timeout 900s; } }`, "not sure .*--backend; candidates: a \\(proxy_buffering off, a long proxy_read_timeout\\)"},
		"none":      {`server { location / { proxy_pass http://a:3000; } }`, "no upstream looks like .*--backend, one of a:3000"},
		"if":        {`upstream llm { server h:8000; } server { location /v1/ { if ($http_x) { set $y 1; } proxy_pass http://llm; } }`, `nginx.conf:1: where the if at .*nginx.conf:1 matches`},
		"in an if":  {`upstream llm { server h:8000; } server { location /v1/ { if ($http_x) { proxy_pass http://llm; } } }`, `inside of if`},
		"try_files": {`upstream llm { server h:8000; } server { location /v1/ { try_files /a /b; proxy_pass http://llm; } }`, `has try_files`},
		"by hand":   {`upstream pointsman_agent { server h:1; } upstream llm { server h:8000; } server { location /v1/ { proxy_pass http://llm; } }`, "attached by hand"},
		"a variable with a scheme": {`server { set $llm http://h:8000; location /v1/ { proxy_pass $llm; } }`,
			`^no proxy_pass that pointsman can follow in this configuration\n.*nginx.conf:1: pointsman cannot tell where proxy_pass \$llm leads: write proxy_pass http://\$llm`},
		"a variable at any path": {`server { set $llm http://h:8000; location / { proxy_pass $llm; } }`,
			`^no proxy_pass that pointsman can follow in this configuration\n.*nginx.conf:1: pointsman cannot tell`},
		"nothing":     {`server { location / { return 200; } }`, "^no proxy_pass in this configuration$"},
		"unix socket": {`upstream llm { server unix:/x; } server { location /v1/ { proxy_pass http://llm; } }`, "nginx.conf:1: unix:/x: .*host:port only"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, filepath.Join(dir, "nginx.conf"), "http { "+c.text+" }")
			_, err := Attach(options(filepath.Join(dir, "nginx.conf"), dir))
			if err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// A pool of any size loads: what its upstream keeps in shared memory grows with
// its servers.
func TestManyReplicas(t *testing.T) {
	for _, bin := range proxies.Nginxes(t) {
		for _, n := range []int{145, 1000, 4096} {
			t.Run(fmt.Sprint(bin.Version, "/", n), func(t *testing.T) {
				dir := t.TempDir()
				var b strings.Builder
				for i := range n {
					fmt.Fprintf(&b, "server 10.1.%d.%d:8000;\n", i/256, i%256)
				}
				main := filepath.Join(dir, "nginx.conf")
				put(t, main, fmt.Sprintf("pid %s/nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\nupstream vllm {\nzone vllm 64m;\n%s}\nserver {\nlisten 8080;\nlocation /v1/ {\nproxy_pass http://vllm;\n}\n}\n}\n", dir, b.String()))
				attachAll(t, options(main, dir), func(args ...string) (string, error) {
					out, err := bin.Command(append([]string{"-p", dir, "-e", "stderr"}, args...)...).CombinedOutput()
					return string(out), err
				})
			})
		}
	}
}
