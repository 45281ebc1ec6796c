package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pointsman/bench/stand"
	"pointsman/config"
	"pointsman/templates"
)

// plainHAProxy is a configuration that a careful user writes by hand, without an agent. log
// is the lines for a log in its defaults, if it has one.
func plainHAProxy(s *scene, log string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "global\n  maxconn 4096\ndefaults\n  mode http\n%s  timeout connect 5s\n  timeout client 600s\n  timeout server 600s\n  retries 2\n  option redispatch\nfrontend in\n  bind %s\n  default_backend llama\nbackend llama\n  balance roundrobin\n  option httpchk GET /health\n", log, s.front)
	for i, e := range s.engines {
		fmt.Fprintf(&b, "  server r%d %s check inter 2s fall 2 rise 1\n", i+1, e)
	}
	path, err := s.write(templates.ConfigFile, b.String())
	if err != nil {
		return err
	}
	return s.run(append(slices.Clone(haproxy), "-db", "-f", path)...)
}

// plainNginx is the same for nginx.
func plainNginx(s *scene) error {
	var servers strings.Builder
	for _, e := range s.engines {
		fmt.Fprintf(&servers, "    server %s;\n", e)
	}
	text := fmt.Sprintf(`pid %[1]s/nginx.pid;
error_log %[1]s/error.log;
worker_processes auto;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  upstream llama {
%[2]s    keepalive 64;
    keepalive_requests 1000000;
  }
  server {
    listen %[3]s;
    client_max_body_size 100m;
    client_body_buffer_size 256k;
    keepalive_requests 1000000;
    location / {
      proxy_pass http://llama;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }
  }
}
`, s.folder, &servers, s.front)
	path, err := s.write(templates.NginxFile, text)
	if err != nil {
		return err
	}
	return s.run(append(slices.Clone(nginx), templates.NginxArguments(s.folder, path)...)...)
}

// ours is a proxy as pointsman renders it, and the agent with its default policy. more is
// added to the keys of haproxy.
func ours(s *scene, onNginx bool, more string) error {
	return rendered(s, onNginx, more, func(_, _, yaml string) error { return s.run(binary, "serve", "--config", yaml) })
}

// doNothing is the same proxy with an agent that does nothing.
func doNothing(s *scene, onNginx bool, more string) error {
	proxy := "haproxy"
	if onNginx {
		proxy = "nginx"
	}
	return rendered(s, onNginx, more, func(socket, feed, _ string) error { return s.run(self, "-null", proxy, socket, feed) })
}

// unasked is the same proxy without an agent and its feed.
func unasked(s *scene, onNginx bool, more string) error { return rendered(s, onNginx, more, nil) }

// rendered starts a proxy as pointsman renders it, with the agent that agent starts; nil =
// none.
func rendered(s *scene, onNginx bool, more string, agent func(socket, feed, yaml string) error) error {
	feed, err := stand.FreePort()
	if err != nil {
		return err
	}
	socket := filepath.Join(s.folder, "agent.sock")
	var b strings.Builder
	if onNginx {
		fmt.Fprintf(&b, "listen: {spoe: off, nginx: %q, feed: %q, admin: off}\nnginx: {bind: %q}\n", "unix://"+socket, feed, s.front)
	} else {
		if more != "" {
			more = ", " + more
		}
		fmt.Fprintf(&b, "listen: {spoe: %q, feed: %q, admin: off}\nhaproxy: {bind: %q, runtime_api: %q%s}\n", "unix://"+socket, feed, s.front, "unix://"+filepath.Join(s.folder, "haproxy.sock"), more)
	}
	fmt.Fprintf(&b, "agent: {state_dir: off}\npools:\n  llama:\n    models: [%s]\n    engine: vllm\n    replicas:\n", stand.Model)
	pool := templates.Pool{Name: "llama", Models: []string{stand.Model}}
	for i, e := range s.engines {
		name := fmt.Sprintf("r%d", i+1)
		fmt.Fprintf(&b, "      %s: {address: %q}\n", name, e)
		pool.Replicas = append(pool.Replicas, templates.Replica{Name: name, Address: e})
	}
	yaml, err := s.write("pointsman.yaml", b.String())
	if err != nil {
		return err
	}
	if agent != nil {
		if err := agent(socket, feed, yaml); err != nil {
			return err
		}
	}
	var argv []string
	if onNginx {
		argv, err = renderNginx(s, socket, feed, pool, agent == nil)
	} else {
		argv, err = renderHAProxy(s, yaml, agent == nil)
	}
	if err != nil {
		return err
	}
	q, err := s.procs.Start(argv[0], argv[1:]...)
	s.routing = append(s.routing, q)
	return err
}

// renderHAProxy renders with the command, like a user; unasked removes the agent.
func renderHAProxy(s *scene, yaml string, unasked bool) ([]string, error) {
	text, err := haproxyVersion()
	if err != nil {
		return nil, err
	}
	version, err := templates.ParseVersion(strings.TrimPrefix(text, "HAProxy "))
	if err != nil {
		return nil, err
	}
	args := []string{"render", "haproxy", "--config", yaml, "--version", version.String(), "--spoe-conf", filepath.Join(s.folder, templates.SPOEFile), "--out", s.folder}
	if out, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pointsman %s: %s", strings.Join(args, " "), out)
	}
	path := filepath.Join(s.folder, templates.ConfigFile)
	if unasked {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if _, err := s.write(templates.ConfigFile, stand.WithoutAgent(string(text))); err != nil {
			return nil, err
		}
	}
	return append(slices.Clone(haproxy), "-db", "-f", path), nil
}

// renderNginx renders the template with the folders of the scene in place of the system's.
func renderNginx(s *scene, socket, feed string, pool templates.Pool, unasked bool) ([]string, error) {
	host, _, err := net.SplitHostPort(s.front)
	if err != nil || host == "" {
		return nil, fmt.Errorf("front %q: %w", s.front, err)
	}
	files, err := templates.RenderNginx(templates.Nginx{
		Bind: s.front, AgentAddress: "unix://" + socket, FeedAddress: feed, Folder: s.folder,
		BodyBuffer: int(config.Default().Nginx.BodyBuffer), ProcessingTimeout: time.Second, Pools: []templates.Pool{pool},
	})
	if err != nil {
		return nil, err
	}
	text := files[0].Text
	if unasked {
		if text, err = stand.NginxWithoutAgent(text, pool.Name); err != nil {
			return nil, err
		}
	}
	path, err := s.write(templates.NginxFile, text)
	return append(slices.Clone(nginx), templates.NginxArguments(s.folder, path)...), err
}
