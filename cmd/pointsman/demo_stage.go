package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/admin"
	"pointsman/templates"
)

// stage is what the demo plays on: replicas, agent and proxy, each a process
// of its own.
type stage struct {
	folder  string
	procs   []*process
	proxy   *demoProxy
	url     string   // of the proxy
	admin   string   // host:port of the agent's
	engines []string // URLs
}

// build starts a stage with a policy and an admission, both in the
// configuration's form, and waits until it serves. late tells that the policy
// holds requests by itself.
func (c *demoCmd) build(ctx context.Context, policy, admission string, late bool) (*stage, error) {
	s := &stage{}
	var err error
	if s.proxy, err = c.proxy(); err != nil {
		return nil, err
	}
	if s.folder, err = os.MkdirTemp("", "pointsman-demo-"); err != nil {
		return nil, err
	}
	if err := c.raise(ctx, s, policy, admission, late); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close ends the processes, the proxy first.
func (s *stage) close() {
	for i := len(s.procs) - 1; i >= 0; i-- {
		s.procs[i].stop()
	}
	os.RemoveAll(s.folder)
}

// demoHold is the longest that requests wait on the stage.
const demoHold = 5 * time.Minute

func (c *demoCmd) raise(ctx context.Context, s *stage, policy, admission string, late bool) error {
	ports, err := freePorts(3*c.Replicas + 3)
	if err != nil {
		return err
	}
	l := layout{feed: ports[c.Replicas], front: ports[c.Replicas+1], pool: templates.Pool{Name: "llama", Models: []string{"demo"}}}
	if late || admission != "" {
		l.timeout = demoHold + holdMargin
		policy += "\n    admission: " + cmp.Or(admission, "{wait: agent, bands: {all: {order: work, ttl: "+demoHold.String()+"}}}")
	}
	s.admin, s.url = ports[c.Replicas+2], "http://"+l.front

	var replicas strings.Builder
	for i, address := range ports[:c.Replicas] {
		name := fmt.Sprintf("r%d", i+1)
		l.pool.Replicas = append(l.pool.Replicas, templates.Replica{Name: name, Address: address})
		events, replay := ports[c.Replicas+3+2*i], ports[c.Replicas+4+2*i]
		fmt.Fprintf(&replicas, "      %s: {address: %q, kv_events: {port: %s, replay: %s}}\n", name, address, portOf(events), portOf(replay))
		if err := s.startEngine(ctx, c, name, address, events, replay); err != nil {
			return err
		}
	}
	files, args, conf, err := s.proxy.lay(s, l)
	if err != nil {
		return err
	}
	conf += fmt.Sprintf("pools:\n  llama:\n    models: [demo]\n    policy: %s\n    engine: vllm\n    replicas:\n%s", policy, &replicas)
	files = append(files, templates.File{Name: "pointsman.yaml", Text: conf})
	if err := writeFiles(s.folder, files); err != nil {
		return err
	}
	if err := s.startAgent(ctx); err != nil {
		return err
	}
	if err := s.start(s.proxy.name, s.proxy.command[0], append(s.proxy.command[1:], args...)...); err != nil {
		return err
	}
	return s.await(ctx, s.url+"/v1/models", s.proxy.name)
}

func (s *stage) startEngine(ctx context.Context, c *demoCmd, name, address, events, replay string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	err = s.start(name, self, "engine", "--listen", address, "--name", name, "--model", "demo",
		"--events", "tcp://"+events, "--replay", "tcp://"+replay, "--profile", "70b", "--speed", fmt.Sprint(c.Speed), "--cache-tokens", fmt.Sprint(c.CacheTokens))
	if err != nil {
		return err
	}
	s.engines = append(s.engines, "http://"+address)
	return s.await(ctx, "http://"+address+"/health", name)
}

func portOf(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

func (s *stage) startAgent(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := s.start("agent", self, "serve", "--config", filepath.Join(s.folder, "pointsman.yaml")); err != nil {
		return err
	}
	return s.await(ctx, "http://"+s.admin+"/readyz", "agent")
}

// settled waits until the feed has told of every request, and returns the
// agent's status then.
func (s *stage) settled(ctx context.Context) (*admin.Status, error) {
	var st admin.Status
	for range 50 {
		page, err := fetch(ctx, "http://"+s.admin+"/status")
		if err != nil {
			return nil, err
		}
		st = admin.Status{}
		if err := sonic.UnmarshalString(page, &st); err != nil {
			return nil, err
		}
		if st.Pools[0].Reservations == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return &st, nil
}

func fetch(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return string(b), err
}
