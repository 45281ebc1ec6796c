package main

import (
	"context"
	"errors"
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
	version string   // of the proxy
	url     string   // of the proxy
	admin   string   // host:port of the agent's
	engines []string // URLs
}

// build starts a stage with a policy, in the configuration's form, and waits
// until it serves.
func (c *demoCmd) build(ctx context.Context, policy string) (*stage, error) {
	s := &stage{}
	var err error
	if s.folder, err = os.MkdirTemp("", "pointsman-demo-"); err != nil {
		return nil, err
	}
	if err := c.raise(ctx, s, policy); err != nil {
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

func (c *demoCmd) raise(ctx context.Context, s *stage, policy string) error {
	proxy := strings.Fields(c.HAProxy)
	if len(proxy) == 0 {
		return errors.New("--haproxy is empty")
	}
	version, text, err := askHAProxy(proxy)
	if err != nil {
		return fmt.Errorf("%w (on Debian: apt-get install haproxy)", err)
	}
	s.version = text
	ports, err := freePorts(c.Replicas + 3)
	if err != nil {
		return err
	}
	feed, front := ports[c.Replicas], ports[c.Replicas+1]
	s.admin, s.url = ports[c.Replicas+2], "http://"+front

	o := templates.HAProxy{
		Version: version, Bind: front,
		AgentAddress: "unix://" + filepath.Join(s.folder, "spoe.sock"), FeedAddress: feed,
		SPOEConf:   filepath.Join(s.folder, templates.SPOEFile),
		RuntimeAPI: "unix://" + filepath.Join(s.folder, "haproxy.sock"),
		Bufsize:    128 << 10,
		Pools:      []templates.Pool{{Name: "llama", Models: []string{"demo"}}},
	}
	var conf strings.Builder
	fmt.Fprintf(&conf, "listen: {spoe: %q, feed: %q, admin: %q}\nhaproxy: {runtime_api: %q}\n", o.AgentAddress, feed, s.admin, o.RuntimeAPI)
	fmt.Fprintf(&conf, "pools:\n  llama:\n    models: [demo]\n    policy: %s\n    engine: vllm\n    replicas:\n", policy)
	for i, address := range ports[:c.Replicas] {
		name := fmt.Sprintf("r%d", i+1)
		o.Pools[0].Replicas = append(o.Pools[0].Replicas, templates.Replica{Name: name, Address: address})
		fmt.Fprintf(&conf, "      %s: {address: %q}\n", name, address)
		if err := s.startEngine(ctx, c, name, address); err != nil {
			return err
		}
	}
	files, err := templates.RenderHAProxy(o)
	if err != nil {
		return err
	}
	files = append(files, templates.File{Name: "pointsman.yaml", Text: conf.String()})
	if err := writeFiles(s.folder, files); err != nil {
		return err
	}
	if err := s.startAgent(ctx); err != nil {
		return err
	}
	args := append(proxy[1:], "-db", "-f", filepath.Join(s.folder, templates.ConfigFile))
	if err := s.start("haproxy", proxy[0], args...); err != nil {
		return err
	}
	return s.await(ctx, s.url+"/v1/models", "haproxy")
}

func (s *stage) startEngine(ctx context.Context, c *demoCmd, name, address string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	err = s.start(name, self, "engine", "--listen", address, "--name", name, "--model", "demo",
		"--profile", "70b", "--speed", fmt.Sprint(c.Speed), "--cache-tokens", fmt.Sprint(c.CacheTokens))
	if err != nil {
		return err
	}
	s.engines = append(s.engines, "http://"+address)
	return s.await(ctx, "http://"+address+"/health", name)
}

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
