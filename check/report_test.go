package check

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pointsman/advice"
)

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// HAProxy's messages name the user's files, not the copies that it read.
func TestOwnNames(t *testing.T) {
	own := writeFile(t, t.TempDir(), "haproxy.cfg", "frontend f\n bind :80\n")
	refuses := `[ "$1" = -v ] && echo HAProxy version 3.0.1 2024/06/10 && exit; [ $# -lt 4 ] || { echo "[ALERT] parsing [$3:2]: unknown keyword in $5"; exit 1; }`
	says, err := checked(t, pools, map[string]string{"haproxy": refuses}, Options{HAProxyConfig: []string{own}})
	if err == nil || !strings.Contains(err.Error(), "parsing ["+own+":2]: unknown keyword in pointsman.cfg") || strings.Contains(err.Error(), "pointsman-check-") {
		t.Errorf("%s\n%v", says, err)
	}
}

func TestJSON(t *testing.T) {
	own := writeFile(t, t.TempDir(), "haproxy.cfg", "frontend f\n mode http\n bind :80\n use_backend llama if { path /v1/x }\n")
	says, err := checked(t, pools, map[string]string{"haproxy": version + "true"}, Options{HAProxyConfig: []string{own}, JSON: true})
	var rep struct {
		OK       bool
		Error    string
		Notes    []string
		Findings []advice.Finding
	}
	if e := json.Unmarshal([]byte(says), &rep); e != nil {
		t.Fatalf("%v: %s", e, says)
	}
	if !errors.Is(err, ErrFaults) || rep.OK || rep.Error == "" || len(rep.Notes) != 3 || len(rep.Findings) != 2 || rep.Findings[1].File != own || rep.Findings[1].Line != 1 {
		t.Errorf("%v: %s", err, says)
	}
	var b strings.Builder
	if err := Lint(&b, Options{HAProxyConfig: []string{own}, JSON: true}); err != nil || !strings.Contains(b.String(), `"ok": true`) || !strings.Contains(b.String(), `"findings": []`) {
		t.Errorf("%v: %s", err, b.String())
	}
}

func TestLintAlone(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "20-b.cfg", "backend llama\n mode http\n balance roundrobin\n option http-no-delay\n option httpclose\n option abortonclose\n server a 10.0.0.1:1\n server b 10.0.0.2:1\n")
	writeFile(t, dir, "10-a.cfg", "defaults\n timeout server 50s\n")
	t.Setenv("PATH", dir)
	var b strings.Builder
	if err := Lint(&b, Options{HAProxyConfig: []string{dir}}); err != nil {
		t.Error(err)
	}
	want := "warning: " + dir + "/10-a.cfg:2: backend llama: timeout server is 50s: a request whose first token, or next one, takes longer ends as 504 or is cut: raise it to 600s in this backend\n" +
		"warning: " + dir + "/20-b.cfg:3: backend llama: balance roundrobin over engines with prefix caches: each turn of a conversation meets a cold cache, and long prompts pile up: use balance leastconn, or attach pointsman\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	if err := Lint(io.Discard, Options{HAProxyConfig: []string{t.TempDir()}}); err == nil || !strings.Contains(err.Error(), "no .cfg file in it") {
		t.Error(err)
	}
}

// The runtime API is asked, and its answers are shown.
func TestRuntimeAPI(t *testing.T) {
	dir, err := os.MkdirTemp("", "pm") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	own := writeFile(t, dir, "haproxy.cfg", "")
	path := filepath.Join(dir, "api")
	text := "haproxy: {runtime_api: 'unix://" + path + "'}\n" + pools
	says := func() string {
		out, _ := checked(t, text, map[string]string{"haproxy": version + "true"}, Options{HAProxyConfig: []string{own}})
		_, out, _ = strings.Cut(out, "haproxy accepts it together with pointsman.cfg\n")
		return out
	}
	if got := says(); !strings.Contains(got, "warning: runtime API unix://"+path+": does not answer: dial unix "+path) || !strings.Contains(got, "mode 660 level admin") {
		t.Errorf("absent: %s", got)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	answers := make(chan [2]string, 1)
	go func() {
		for {
			a := <-answers
			for _, text := range a {
				c, err := l.Accept()
				if err != nil {
					return
				}
				bufio.NewReader(c).ReadString('\n')
				io.WriteString(c, text)
				c.Close()
			}
		}
	}()
	for _, c := range []struct{ level, stat, want string }{
		{"admin\n", "# pxname,svname\nllama,r1\n", "runtime API unix://" + path + ": HAProxy answers, level admin\n"},
		{"operator\n", "# pxname,svname\nllama,r1\n", "HAProxy says \"operator\": servers cannot be added or changed: write `level admin` on its stats socket line\n"},
		{"admin\n", "# pxname,svname\nother,r1\n", "HAProxy runs without a backend llama: reload HAProxy with the attached configuration\n"},
		{"Permission denied\n", "Permission denied\n", `HAProxy answers "Permission denied\n" to show stat`},
	} {
		answers <- [2]string{c.level, c.stat}
		if got := says(); !strings.Contains(got, c.want) {
			t.Errorf("%q: %s", c.level, got)
		}
	}
}

func TestDenied(t *testing.T) {
	for _, c := range []struct {
		mode     os.FileMode
		uid, gid uint32
		want     string
	}{
		{0o660, 7, 9, ""},
		{0o660, 42, 9, ""},
		{0o660, 7, 8888, "user pm may not write to it (mode 660, group 8888)"},
		{0o666, 7, 8888, ""},
		{0o600, 7, 9, "user pm may not write to it (mode 600, group "},
	} {
		if got := denied(c.mode, c.uid, c.gid, "pm", "42", []string{"9", "42"}); (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := denied(0, 1, 1, "root", "0", nil); got != "" {
		t.Error(got)
	}
}
