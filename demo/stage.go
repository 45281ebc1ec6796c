package demo

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
	"pointsman/resolve"
	"pointsman/sim/replay"
	"pointsman/templates"
)

// stage is what the demo plays on: replicas, agent and proxy, each a process
// of its own.
type stage struct {
	folder  string
	procs   []*process
	proxy   *proxy
	url     string   // of the proxy
	admin   string   // host:port of the agent's
	engines []string // URLs
}

// build starts a stage with a policy and an admission, in the configuration's
// flow form or empty, and waits until it serves.
func (o *Options) build(ctx context.Context, policy replay.Policy, admission string) (*stage, error) {
	s := &stage{}
	var err error
	if s.proxy, err = o.proxy(); err != nil {
		return nil, err
	}
	if s.folder, err = os.MkdirTemp("", "pointsman-demo-"); err != nil {
		return nil, err
	}
	if err := o.start(ctx, s, policy, admission); err != nil {
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

// decisionTimeout is how long the proxy waits for a decision. It is generous,
// since all processes of the stage share one machine.
const decisionTimeout = time.Second

// longestHold is the longest that requests wait on the stage.
const longestHold = 5 * time.Minute

// start starts the replicas, the agent and the proxy.
func (o *Options) start(ctx context.Context, s *stage, policy replay.Policy, admission string) error {
	ports, err := freePorts(3*o.Replicas + 3)
	if err != nil {
		return err
	}
	l := layout{feed: ports[o.Replicas], front: ports[o.Replicas+1], timeout: decisionTimeout, pool: templates.Pool{Name: "llama", Models: []string{"demo"}}}
	routing := policy.Flow
	if policy.Late || admission != "" {
		l.timeout = resolve.ProcessingTimeout(longestHold)
		routing += "\n    admission: " + cmp.Or(admission, "{wait: agent, bands: {all: {order: work, ttl: "+longestHold.String()+"}}}")
	}
	s.admin, s.url = ports[o.Replicas+2], "http://"+l.front

	var replicas strings.Builder
	for i, address := range ports[:o.Replicas] {
		name := fmt.Sprintf("r%d", i+1)
		l.pool.Replicas = append(l.pool.Replicas, templates.Replica{Name: name, Address: address})
		events, replay := ports[o.Replicas+3+2*i], ports[o.Replicas+4+2*i]
		fmt.Fprintf(&replicas, "      %s: {address: %q, kv_events: {port: %s, replay: %s}}\n", name, address, portOf(events), portOf(replay))
		if err := s.startEngine(ctx, o, name, address, events, replay); err != nil {
			return err
		}
	}
	files, args, conf, err := s.proxy.lay(s, l)
	if err != nil {
		return err
	}
	conf += fmt.Sprintf("pools:\n  llama:\n    models: [demo]\n    policy: %s\n    engine: vllm\n    replicas:\n%s", routing, &replicas)
	files = append(files, templates.File{Name: "pointsman.yaml", Text: conf})
	if err := templates.Write(s.folder, files); err != nil {
		return err
	}
	if err := s.startAgent(ctx, o.Self); err != nil {
		return err
	}
	if err := s.start(s.proxy.name, s.proxy.command[0], append(s.proxy.command[1:], args...)...); err != nil {
		return err
	}
	return s.await(ctx, s.url+"/v1/models", s.proxy.name)
}

func (s *stage) startEngine(ctx context.Context, o *Options, name, address, events, replay string) error {
	err := s.start(name, o.Self, "engine", "--listen", address, "--name", name, "--model", "demo",
		"--events", "tcp://"+events, "--replay", "tcp://"+replay, "--profile", "70b", "--speed", fmt.Sprint(o.Speed), "--cache-tokens", fmt.Sprint(o.CacheTokens))
	if err != nil {
		return err
	}
	s.engines = append(s.engines, "http://"+address)
	return s.await(ctx, "http://"+address+"/health", name)
}

func portOf(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

func (s *stage) startAgent(ctx context.Context, self string) error {
	if err := s.start("agent", self, "serve", "--config", filepath.Join(s.folder, "pointsman.yaml")); err != nil {
		return err
	}
	return s.await(ctx, "http://"+s.admin+"/readyz", "agent")
}

// settled waits until the feed has reported every request, and returns the
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
