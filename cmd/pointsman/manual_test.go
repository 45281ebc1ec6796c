package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"pointsman/manual"
	"pointsman/test/proxies"
)

func model(t *testing.T) *kong.Application {
	t.Helper()
	p, err := kong.New(&cli{}, options...)
	if err != nil {
		t.Fatal(err)
	}
	return p.Model
}

// Each command has a man page with all its flags, and the first page names each.
func TestManPages(t *testing.T) {
	pages := map[string]string{}
	for _, p := range manual.Man(model(t), notes) {
		pages[p.Name] = p.Text
	}
	for _, want := range []string{`\-\-config=`, `"-c"`, "pointsman serve", ".SH SEE ALSO", `text or json.`} {
		want = strings.ReplaceAll(want, `"-c"`, `\-c`)
		if !strings.Contains(pages["pointsman-serve.1"], want) {
			t.Errorf("pointsman-serve.1: no %s in\n%s", want, pages["pointsman-serve.1"])
		}
	}
	if pages["pointsman-attach-haproxy.1"] == "" || pages["pointsman-man.1"] != "" || !strings.Contains(pages["pointsman.1"], `.BR pointsman\-simulate (1)`) {
		t.Errorf("%d pages", len(pages))
	}
	dir := filepath.Join(t.TempDir(), "man")
	if _, err := run(t, "man", dir); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.[15]"))
	if err != nil || len(files) != len(pages)+1 {
		t.Errorf("%v, %v", files, err)
	}
	keys := configurationFile().Page().Text
	for _, want := range []string{`.B listen.spoe`, `.B pools.NAME.replicas.NAME.address`, `Default: 50ms`} {
		if !strings.Contains(keys, want) {
			t.Errorf("pointsman.yaml.5: no %s in\n%s", want, keys)
		}
	}
	proxies.Tool(t, "groff")
	for _, f := range files {
		out, err := exec.Command("groff", "-ww", "-man", "-z", "-Tutf8", f).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", filepath.Base(f), err, out)
		}
	}
}

// What bash offers after some words.
func TestBashCompletion(t *testing.T) {
	bash := proxies.Tool(t, "bash")
	script, err := run(t, "completion", "bash")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "body.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"se":                    "serve",
		"attach ":               "haproxy nginx",
		"attach haproxy --own":  "--own-file",
		"serve --log-format ":   "text json",
		"serve --log-level d":   "debug",
		"explain b":             "body.json",
		"serve -c body":         "body.json",
		"render ":               "haproxy nginx systemd",
		"completion z":          "zsh",
		"serve --log-format j":  "json",
		"status --nonsense":     "",
		"serve --config body.j": "body.json",
	} {
		words := strings.Split("pointsman "+line, " ")
		cmd := exec.Command(bash, append([]string{"-c", script + "\nCOMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)); _pointsman; echo ${COMPREPLY[*]}", "bash"}, words...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s: %q, want %q, %v", line, got, want, err)
		}
	}
}

// The other shells find no fault in theirs, and each command is in all.
func TestCompletions(t *testing.T) {
	m := model(t)
	for _, shell := range manual.Shells {
		text := manual.Complete(m, shell)
		for _, word := range []string{"serve", "simulate", "log-format", "debug", "own-file"} {
			if !strings.Contains(text, word) {
				t.Errorf("%s: no %s", shell, word)
			}
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("no %s here to read its completions", shell)
			continue
		}
		file := filepath.Join(t.TempDir(), "completions")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(path, "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
		if shell == "fish" {
			out, err := exec.Command(path, "--no-config", "-c", "source "+file+"; complete -C 'pointsman attach '").Output()
			if names := strings.Fields(string(out)); err != nil || !slices.Contains(names, "haproxy") || !slices.Contains(names, "nginx") || slices.Contains(names, "serve") {
				t.Errorf("fish offers %s, %v", out, err)
			}
		}
	}
}
