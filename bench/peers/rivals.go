package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"pointsman/bench/stand"
)

// rival is one way to route. Each is configured as its own documentation recommends
// for replicas whose caches matter.
type rival struct {
	name  string // for -only
	title string // in tables
	base  string // the rival without a decision, to compare with
	start func(*scene) error

	version func() (string, error)
	command string // how it is started, for the reader
	missing string // why it cannot start, if that is known beforehand
	part    bool   // it shows what a part of pointsman costs, and runs only if it is named
}

// rivals are all rivals, in the order of the tables.
var rivals = []*rival{
	{name: "haproxy", title: "plain HAProxy", start: func(s *scene) error { return plainHAProxy(s, "") }, version: haproxyVersion, command: "`balance roundrobin`, connections kept, health checks, no log"},
	{name: "pointsman-haproxy", title: "**HAProxy + pointsman**", base: "haproxy", start: func(s *scene) error { return ours(s, false, "") }, version: ownVersion,
		command: "as `pointsman render haproxy` writes it, default policy"},
	{name: "pointsman-haproxy-new", title: "**HAProxy + pointsman, new connections**", base: "haproxy", start: func(s *scene) error { return ours(s, false, "retry_sent: false") }, version: ownVersion,
		command: "the same with `haproxy.retry_sent: false`: each request has a new connection to its replica"},
	{name: "pointsman-haproxy-small", title: "**HAProxy + pointsman, small requests**", base: "haproxy", start: func(s *scene) error { return ours(s, false, "bufsize: 32KiB") }, version: ownVersion,
		command: "the same with `haproxy.bufsize: 32KiB`, for requests up to 23 KB"},
	{name: "haproxy-log", title: "plain HAProxy with a log", base: "haproxy", part: true, version: haproxyVersion,
		start:   func(s *scene) error { return plainHAProxy(s, "  log /dev/log local0\n  option httplog\n") },
		command: "the same with `log /dev/log local0` and `option httplog`, as rendered configurations have"},
	{name: "haproxy-rules", title: "our rules, nobody asked", base: "haproxy", part: true, start: func(s *scene) error { return unasked(s, false, "") }, version: haproxyVersion,
		command: "as `pointsman render haproxy` writes it, without the lines for the agent and its feed"},
	{name: "haproxy-nothing", title: "HAProxy + an agent that does nothing", base: "haproxy", part: true, start: func(s *scene) error { return doNothing(s, false, "") }, version: haproxyVersion,
		command: "as `pointsman render haproxy` writes it; the agent answers each question at once without a decision"},
	{name: "haproxy-nothing-small", title: "the same, small requests", base: "haproxy", part: true, start: func(s *scene) error { return doNothing(s, false, "bufsize: 32KiB") }, version: haproxyVersion,
		command: "the same with `haproxy.bufsize: 32KiB`"},
	{name: "nginx", title: "plain nginx", start: plainNginx, version: nginxVersion, command: "round robin, `keepalive 64`, `proxy_buffering off`, no log"},
	{name: "pointsman-nginx", title: "**nginx + pointsman**", base: "nginx", start: func(s *scene) error { return ours(s, true, "") }, version: ownVersion,
		command: "as `pointsman render nginx` writes it, default policy"},
	{name: "nginx-rules", title: "our rules, nobody asked (nginx)", base: "nginx", part: true, start: func(s *scene) error { return unasked(s, true, "") }, version: nginxVersion,
		command: "as `pointsman render nginx` writes it, but passed to the pool and not to the agent, and without its feed"},
	{name: "nginx-nothing", title: "nginx + an agent that does nothing", base: "nginx", part: true, start: func(s *scene) error { return doNothing(s, true, "") }, version: nginxVersion,
		command: "as `pointsman render nginx` writes it; the agent answers each question at once with the next replica"},
	router("sglang", "SGLang router", "sglang-router", "{bin}/python -m sglang_router.launch_router --host {host} --port {port} --worker-urls {urls} --policy cache_aware --prometheus-host 127.0.0.1 --prometheus-port {free} --log-level warn"),
	router("smg", "SMG", "smg", "{bin}/smg launch --host {host} --port {port} --worker-urls {urls} --policy cache_aware --disable-tokenizer-autoload --prometheus-host 127.0.0.1 --prometheus-port {free} --log-level warn"),
	router("vllm-router", "vLLM router", "vllm-router", "{bin}/vllm-router --host {host} --port {port} --worker-urls {urls} --policy cache_aware --prometheus-host 127.0.0.1 --prometheus-port {free} --log-level warning"),
	router("production-stack", "production-stack", "production-stack", "{bin}/vllm-router --host {host} --port {port} --service-discovery static --static-backends {commas} --static-models {models} --routing-logic prefixaware --log-level warning"),
	litellm(),
}

// cache is the folder in which test/setup.sh installs rivals.
func cache() string {
	for _, name := range []string{"POINTSMAN_CACHE", "XDG_CACHE_HOME", "HOME"} {
		if v := os.Getenv(name); v != "" {
			switch name {
			case "XDG_CACHE_HOME":
				v = filepath.Join(v, "pointsman")
			case "HOME":
				v = filepath.Join(v, ".cache", "pointsman")
			}
			return filepath.Join(v, "peers")
		}
	}
	return "peers"
}

// router is a rival with one process, from the PyPI package and the cache folder of that
// name. Its command line has names in braces, which fill replaces.
func router(name, title, pack, line string) *rival {
	bin := filepath.Join(cache(), pack, "bin")
	r := &rival{name: name, title: title, command: "`" + strings.ReplaceAll(line, "{bin}/", "") + "`"}
	r.version = func() (string, error) { return packageVersion(pack) }
	r.start = func(s *scene) error {
		argv, err := fill(line, bin, s)
		if err != nil {
			return err
		}
		return s.run(argv...)
	}
	if _, err := os.Stat(filepath.Join(bin, "python")); err != nil {
		r.missing = "not installed: `sh test/setup.sh peers`"
		if name == "production-stack" {
			r.missing = "not installed: its package is not on PyPI, where another project has its name; test/setup.sh says how to add it"
		}
	}
	return r
}

// litellm also needs a configuration file.
func litellm() *rival {
	r := router("litellm", "LiteLLM proxy", "litellm", "{bin}/litellm --config {folder}/litellm.yaml --host {host} --port {port} --num_workers 1 --telemetry False")
	run := r.start
	r.command += ", `routing_strategy: least-busy`"
	r.start = func(s *scene) error {
		var b strings.Builder
		b.WriteString("model_list:\n")
		for _, e := range s.engines {
			fmt.Fprintf(&b, "  - model_name: %s\n    litellm_params: {model: openai/%s, api_base: %q, api_key: none}\n", stand.Model, stand.Model, "http://"+e+"/v1")
		}
		// On loopback it needs no key, but without one it would not start.
		b.WriteString("router_settings: {routing_strategy: least-busy}\ngeneral_settings: {dangerously_permit_weak_or_unset_master_key: true}\n")
		if _, err := s.write("litellm.yaml", b.String()); err != nil {
			return err
		}
		return run(s)
	}
	return r
}

// fill makes the arguments of a command line: {urls} becomes several.
func fill(line, bin string, s *scene) ([]string, error) {
	host, port, err := net.SplitHostPort(s.front)
	if err != nil {
		return nil, err
	}
	var urls, names []string
	for _, e := range s.engines {
		urls, names = append(urls, "http://"+e), append(names, stand.Model)
	}
	free := ""
	if strings.Contains(line, "{free}") {
		address, err := stand.FreePort()
		if err != nil {
			return nil, err
		}
		_, free, _ = net.SplitHostPort(address)
	}
	replace := strings.NewReplacer("{bin}", bin, "{host}", host, "{port}", port, "{free}", free, "{folder}", s.folder,
		"{commas}", strings.Join(urls, ","), "{models}", strings.Join(names, ","))
	var argv []string
	for _, word := range strings.Fields(line) {
		if word == "{urls}" {
			argv = append(argv, urls...)
			continue
		}
		argv = append(argv, replace.Replace(word))
	}
	return argv, nil
}

// packageVersion is the version of an installed package, from the name of the folder with
// its description.
func packageVersion(pack string) (string, error) {
	name := strings.ReplaceAll(pack, "-", "_")
	if pack == "production-stack" {
		name = "vllm_router"
	}
	found, err := filepath.Glob(filepath.Join(cache(), pack, "lib", "python3*", "site-packages", name+"-*.dist-info"))
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("no package %s in %s", pack, cache())
	}
	version := strings.TrimSuffix(filepath.Base(found[0]), ".dist-info")
	return pack + " " + version[len(name)+1:], nil
}

func haproxyVersion() (string, error) {
	out, err := printed(haproxy)
	line, _, _ := strings.Cut(out, " - ")
	return strings.Replace(line, "version ", "", 1), err
}

func nginxVersion() (string, error) {
	out, err := printed(nginx)
	_, version, _ := strings.Cut(strings.TrimSpace(out), ": ")
	return strings.Replace(version, "/", " ", 1), err
}

// printed is the version that a proxy prints.
func printed(command []string) (string, error) {
	if len(command) == 0 {
		return "", errors.New("no command")
	}
	out, err := exec.Command(command[0], append(slices.Clone(command[1:]), "-v")...).CombinedOutput()
	return string(out), err
}

func ownVersion() (string, error) { return "this commit", nil }
