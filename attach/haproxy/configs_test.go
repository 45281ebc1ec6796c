package haproxy

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/attach"
	"pointsman/config"
	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/resolve"
	"pointsman/test/proxies"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const configurations = "../testdata/haproxy"

// configured lists the configurations by name: files, and folders of .cfg
// files.
func configured(t testing.TB) (names []string) {
	entries, err := os.ReadDir(configurations)
	if err != nil || len(entries) < 20 {
		t.Fatal(len(entries), err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// place copies a configuration to a folder, with its blanks filled in.
func place(t testing.TB, name, dir string) string {
	t.Helper()
	from := filepath.Join(configurations, name)
	fill := strings.NewReplacer("@front@", "8080", "@front2@", "8081", "@front3@", "8082", "@front4@", "8083",
		"@cert@", filepath.Join(dir, "cert.pem"), "@map@", filepath.Join(dir, "hosts.map"), "@errors@", filepath.Join(dir, "503.http"))
	put(t, filepath.Join(dir, "cert.pem"), certificate(t))
	put(t, filepath.Join(dir, "hosts.map"), "ai.example.com vllm\nexample.com site\n")
	put(t, filepath.Join(dir, "503.http"), "HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\n\r\nbusy\n")
	to := filepath.Join(dir, name)
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		put(t, to+strings.TrimPrefix(path, from), fill.Replace(string(text)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// backends are named where a configuration does not say by itself which of its
// backends are LLM engines.
var backends = map[string][]string{"compose.cfg": {"vllm"}}

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
func options(path, dir, version string) Options {
	return Options{
		Paths: []string{path}, Config: filepath.Join(dir, "out", "pointsman.yaml"), Out: filepath.Join(dir, "out"),
		Resolve: func(name string, text []byte) (*resolve.Config, error) {
			o := resolve.Options{Policies: policies, HAProxyVersion: version}
			c, err := config.Parse(name, text, func(string) string { return "" }, o.Checks())
			if err != nil {
				return nil, err
			}
			return resolve.Resolve(c, o)
		},
	}
}

// content is all of a file or a folder.
func content(t testing.TB, path string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
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

// Each configuration is attached to and detached from, in each form, with every
// HAProxy at hand: it accepts the result without a new warning, a second run
// changes nothing, and detaching restores every byte.
func TestConfigurations(t *testing.T) {
	for _, bin := range proxies.HAProxies(t) {
		run := func(args ...string) (string, error) {
			out, err := bin.Command(args...).CombinedOutput()
			return string(out), err
		}
		for _, name := range configured(t) {
			for _, ownFile := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/%s", bin.Version, name, map[bool]string{true: "own-file", false: "inline"}[ownFile]), func(t *testing.T) {
					t.Parallel()
					dir := t.TempDir()
					path := place(t, name, dir)
					o := options(path, dir, bin.Version)
					o.OwnFile, o.Backends = ownFile, backends[name]
					original := content(t, path)
					r, err := Attach(o)
					if err != nil {
						t.Fatal(err)
					}
					if warnings := write(t, r, run); len(warnings) > 0 {
						t.Errorf("new warnings:\n%s\n%s", strings.Join(warnings, "\n"), r.Patch())
					}
					args := []string{"-c", "-f", path}
					if r.Load != "" {
						args = append(args, "-f", r.Load)
					}
					if out, err := run(args...); err != nil || strings.Contains(out, "pointsman") && !strings.Contains(out, dir) {
						t.Errorf("%v\n%s", err, out)
					}
					fewPerFrontend(t, r)
					unconditional(t, r)
					again, err := Attach(o)
					if err != nil {
						t.Fatal(err)
					}
					if again.Changed() {
						t.Errorf("a second run changes\n%s", again.Patch())
					}
					d, err := Detach(o)
					if err != nil {
						t.Fatal(err)
					}
					write(t, d, run)
					if now := content(t, path); now != original {
						t.Errorf("detached to\n%s\nfrom\n%s", now, original)
					}
				})
			}
		}
	}
}

// write has HAProxy check a result, and writes it. It returns new warnings.
func write(t *testing.T, r *Result, run func(args ...string) (string, error)) []string {
	t.Helper()
	warnings, err := r.Verify(run)
	if err != nil {
		t.Fatalf("%v\n%s", err, r.Patch())
	}
	if _, err := attach.Write(r.Changes, t.TempDir(), "x", nil); err != nil {
		t.Fatal(err)
	}
	return warnings
}

// fewPerFrontend asks for at most six added lines in a frontend.
func fewPerFrontend(t *testing.T, r *Result) {
	t.Helper()
	for _, c := range r.Changes[:r.Theirs] {
		section, n := "", 0
		for line := range strings.Lines(string(c.After)) {
			if w := strings.Fields(line); len(w) > 1 && (w[0] == "frontend" || w[0] == "backend" || w[0] == "listen" || w[0] == "defaults" || w[0] == "ring") {
				section, n = w[0], 0
			}
			if strings.Contains(line, "# pointsman-attach") && section == "frontend" {
				if n++; n > 6 {
					t.Errorf("more than six lines in a frontend of %s:\n%s", c.Path, c.After)
					return
				}
			}
		}
	}
}

// What is written for HAProxy 3.4, which is not at hand, is seen by a reader.
func TestGolden(t *testing.T) {
	for _, version := range []string{"2.6", "3.4"} {
		for _, name := range []string{"plain.cfg", "own-log-format.cfg", "listen.cfg"} {
			dir := t.TempDir()
			r, err := Attach(options(place(t, name, dir), dir, version))
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			for _, c := range r.Changes {
				b.WriteString(attach.Diff(c.Path, c.Before, c.After))
			}
			got := strings.ReplaceAll(b.String(), dir, "/etc/haproxy")
			golden := filepath.Join("testdata", version, strings.TrimSuffix(name, ".cfg")+".patch")
			if *update {
				put(t, golden, got)
			}
			if want, err := os.ReadFile(golden); err != nil || string(want) != got {
				t.Errorf("%s is not what is written (%v); go test -update shows the difference in git", golden, err)
			}
		}
	}
}

// A file of HAProxy's that is refused as it is, is said to be.
func TestVerifyBlamesTheRightFile(t *testing.T) {
	bin := proxies.HAProxies(t)[0]
	dir := t.TempDir()
	path := place(t, "plain.cfg", dir)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, path, string(text)+"    no-such-keyword\n")
	r, err := Attach(options(path, dir, bin.Version))
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Verify(func(args ...string) (string, error) {
		out, err := bin.Command(args...).CombinedOutput()
		return string(out), err
	})
	if !errors.Is(err, errAlready) || !strings.Contains(err.Error(), path+":") {
		t.Errorf("%v, want that it names %s", err, path)
	}
}

// With a file of our own the unit keeps its options, and loads it.
func TestDropIn(t *testing.T) {
	for defaults, want := range map[string]string{
		"":                              `EXTRAOPTS="-S /run/haproxy-master.sock -f OUT/pointsman.cfg"`,
		"# EXTRAOPTS=\n":                `EXTRAOPTS="-S /run/haproxy-master.sock -f OUT/pointsman.cfg"`,
		"EXTRAOPTS=\"-de -m 16\"\n":     `EXTRAOPTS="-de -m 16 -f OUT/pointsman.cfg"`,
		"EXTRAOPTS='-S /x -f /a.cfg'\n": `EXTRAOPTS="-S /x -f /a.cfg -f OUT/pointsman.cfg"`,
	} {
		dir := t.TempDir()
		o := options(place(t, "plain.cfg", dir), dir, "3.2")
		o.OwnFile, o.Defaults, o.DropIn = true, []byte(defaults), filepath.Join(dir, "haproxy.service.d", "pointsman.conf")
		r, err := Attach(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := attach.Write(r.Changes, t.TempDir(), "x", nil); err != nil {
			t.Fatal(err)
		}
		env := filepath.Join(o.Out, "haproxy.env")
		if text, err := os.ReadFile(env); err != nil || string(text) != strings.ReplaceAll(want, "OUT", o.Out)+"\n" {
			t.Errorf("%q gives %s, %v", defaults, text, err)
		}
		if text, err := os.ReadFile(o.DropIn); err != nil || !strings.HasSuffix(string(text), "\n[Service]\nEnvironmentFile="+env+"\n") {
			t.Errorf("%v, the drop-in is\n%s", err, text)
		}
		if again, err := Attach(o); err != nil || again.Changed() {
			t.Errorf("a second time: %v", err)
		}
		d, err := Detach(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := attach.Write(d.Changes, t.TempDir(), "y", nil); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{env, o.DropIn} {
			if _, err := os.Stat(path); err == nil {
				t.Errorf("%s stays", path)
			}
		}
		put(t, o.DropIn, "[Service]\nNice=1\n") // somebody else's
		if d, err := Detach(o); err != nil || d.Changed() {
			t.Errorf("detach changes another's drop-in: %v", err)
		}
	}
}

// From 3.2 on the frontend's format has to be one that is written at the end, and what
// it says of the request's first line stays.
func TestLogsAtEnd(t *testing.T) {
	for format, want := range map[string]string{
		"option httplog":                  "",
		"log-format '%ci %r %ST %B'":      "",
		"log-format '%ci %{+Q}r %ST %ts'": "",
		"log-format '%ci %ST'":            "    log-steps close # pointsman-attach",
		"option dontlognull":              "    log-steps close # pointsman-attach",
		"log-format '%ci %HM %HU'":        `    log-format '%ci %HM %HU'" %ts" # pointsman-attach`,
	} {
		for _, where := range []string{"defaults\n", "frontend llm\n"} {
			dir := t.TempDir()
			path := place(t, "plain.cfg", dir)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			put(t, path, strings.Replace(strings.Replace(string(text), "    option  httplog\n", "", 1), where, where+"    "+format+"\n", 1))
			r, err := Attach(options(path, dir, "3.2"))
			if err != nil {
				t.Fatal(err)
			}
			patch := r.Patch()
			if got := strings.Contains(patch, "+    log-steps") || strings.Contains(patch, "+    log-format"); got != (want != "") || !strings.Contains(patch, want) {
				t.Errorf("%s in %s gives\n%s", format, where, patch)
			}
		}
	}
}
