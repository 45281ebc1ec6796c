package main

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/alecthomas/kong"

	"pointsman/test/proxies"
)

// asNobody runs something as a user without any rights, on a thread of its own that
// ends with it.
func asNobody(t *testing.T, do func()) {
	t.Helper()
	if os.Getuid() != 0 {
		do()
		return
	}
	const nobody = 65534
	done := make(chan syscall.Errno, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: no other goroutine gets this thread
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody)
		defer func() { done <- errno }()
		if errno == 0 {
			do()
		}
	}()
	if errno := <-done; errno != 0 {
		proxies.Missing(t, "the user cannot be changed: %v", errno)
	}
}

// printed runs a command as run does, without a file for what it prints.
func printed(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, err := kong.Must(&cli{}, options...).Parse(args)
	if err != nil {
		return "", err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	text := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(r)
		text <- string(all)
	}()
	stdout := os.Stdout
	os.Stdout = w
	err = ctx.Run()
	os.Stdout = stdout
	w.Close()
	return <-text, err
}

// Without root, attach and detach print what would change, also where the proxy's own
// check needs root; --write names the folders that it may not write to and what to do,
// before it changes anything.
func TestAttachWithoutRoot(t *testing.T) {
	dir := t.TempDir()
	for path := dir; path != filepath.Dir(os.TempDir()); path = filepath.Dir(path) {
		if path == os.TempDir() {
			break
		}
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const refuses = "#!/bin/sh\n[ $(id -u) = 0 ] || { echo 'open() \"/run/proxy.pid\" failed (13: Permission denied)' >&2; exit 1; }\n"
	put("bin/nginx", refuses, 0o755)
	put("bin/haproxy", refuses, 0o755)
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	files := map[string]string{
		"nginx":   put("nginx/nginx.conf", "events {}\nhttp {\n\tupstream llm { server 127.0.0.1:8000; }\n\tserver {\n\t\tlisten 8081;\n\t\tlocation /v1/ { proxy_pass http://llm; }\n\t}\n}\n", 0o644),
		"haproxy": put("haproxy/haproxy.cfg", "defaults\n\tmode http\n\nfrontend api\n\tbind :8080\n\tdefault_backend llm\n\nbackend llm\n\tserver r1 127.0.0.1:8000\n", 0o644),
	}
	for proxy, file := range files {
		own := filepath.Join(dir, "own-"+proxy)
		args := []string{"attach", proxy, "--" + proxy + "-config", file, "--backend", "llm", "-c", filepath.Join(own, "pointsman.yaml"), "--out", own}
		if proxy == "haproxy" {
			args = append(args, "--version", "2.6")
		}
		attempt := func(want string) {
			t.Helper()
			before, _ := os.ReadFile(file)
			asNobody(t, func() {
				out, err := printed(t, args...)
				if err != nil || !strings.Contains(out, want) {
					t.Errorf("%q, without root: %v\n%s", args, err, out)
				}
				if syscall.Access(filepath.Dir(file), 2) == nil {
					return // not root's: it may be written
				}
				_, err = printed(t, append(args, "--write")...)
				for _, says := range []string{filepath.Dir(file), own, "permission denied", "run this as root"} {
					if err == nil || !strings.Contains(err.Error(), says) {
						t.Errorf("%q --write, without root: no %q in %v", args, says, err)
					}
				}
			})
			if after, _ := os.ReadFile(file); string(after) != string(before) {
				t.Errorf("changed:\n%s", after)
			}
		}
		attempt("+")
		if os.Getuid() != 0 {
			continue
		}
		if out, err := run(t, append(args, "--write")...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		args[0] = "detach"
		attempt("-")
		if err := os.Chmod(file, 0o600); err != nil {
			t.Fatal(err)
		}
		asNobody(t, func() {
			if _, err := printed(t, args...); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "run this as root") {
				t.Errorf("of a file that cannot be read: %v", err)
			}
		})
	}
}
