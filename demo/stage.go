package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/admin"
	"pointsman/decider"
	"pointsman/loopback"
	"pointsman/resolve"
	"pointsman/sim/replay"
	"pointsman/templates"
)

// stage is what the demo plays on: replicas, agents and a proxy for each, each a
// process of its own.
type stage struct {
	folder  string
	procs   []*process
	proxies []*proxy // of the agents in turn
	urls    []string // of the proxies
	admins  []string // host:port of the agents
	engines []string // URLs
}

// build starts a stage with a policy and an admission, in the configuration's
// flow form or empty, and waits until it serves.
func (o *Options) build(ctx context.Context, policy replay.Policy, admission string) (*stage, error) {
	s := &stage{}
	var err error
	if s.proxies, err = o.proxies(); err != nil {
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

// titles names the proxies and their versions.
func (s *stage) titles() string {
	var list []string
	for _, p := range s.proxies {
		list = append(list, p.title+" "+p.version)
	}
	return strings.Join(list, " and ")
}

func (s *stage) versions() string {
	var list []string
	for _, p := range s.proxies {
		list = append(list, p.version)
	}
	return strings.Join(list, ",")
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

// start starts the replicas, the agents and their proxies.
func (o *Options) start(ctx context.Context, s *stage, policy replay.Policy, admission string) error {
	agents := max(o.Agents, 1)
	fronts := max(o.Proxies, agents)
	ports, err := loopback.Addresses(3*o.Replicas + 3*agents + fronts)
	if err != nil {
		return err
	}
	next := func() string {
		port := ports[0]
		ports = ports[1:]
		return port
	}
	timeout, pool := decisionTimeout, templates.Pool{Name: "llama", Models: []string{"demo"}}
	routing := policy.Flow
	if policy.Late || admission != "" {
		timeout = resolve.ProcessingTimeout(longestHold)
		routing += "\n    admission: " + cmp.Or(admission, "{wait: agent, bands: {all: {order: work, ttl: "+longestHold.String()+"}}}")
	}
	var replicas strings.Builder
	for i := range o.Replicas {
		name, address, events, replay := fmt.Sprintf("r%d", i+1), next(), next(), next()
		pool.Replicas = append(pool.Replicas, templates.Replica{Name: name, Address: address})
		fmt.Fprintf(&replicas, "      %s: {address: %q, kv_events: {port: %s, replay: %s}}\n", name, address, portOf(events), portOf(replay))
		if err := s.startEngine(ctx, o, name, address, events, replay); err != nil {
			return err
		}
	}
	conf := fmt.Sprintf("agent: {state_dir: off}\npools:\n  llama:\n    models: [demo]\n    policy: %s\n    engine: vllm\n    replicas:\n%s", routing, &replicas)
	first := ""
	var seats []layout // of the agents
	for i := range agents {
		l := layout{front: next(), feed: next(), admin: next(), folder: filepath.Join(s.folder, fmt.Sprint("agent", i+1)), timeout: timeout, pool: pool}
		l.agent = l.folder
		if err := os.Mkdir(l.folder, 0o700); err != nil {
			return err
		}
		if listen := next(); agents > 1 {
			first = cmp.Or(first, listen)
			secret := filepath.Join(l.folder, "secret")
			if err := os.WriteFile(secret, []byte("the agents of a demo"), 0o600); err != nil {
				return err
			}
			bus := fmt.Sprintf("listen: %q, peers: [%q]", listen, first)
			if o.NATS != "" {
				bus = fmt.Sprintf("nats: %q", o.NATS)
			}
			conf = fmt.Sprintf("cluster: {name: demo, agent: agent%d, %s, secret_file: %q}\n", i+1, bus, secret) + afterCluster(conf)
		}
		l.proxy = s.proxies[i%len(s.proxies)]
		if err := s.startAgent(ctx, o.Self, l, conf, i+1); err != nil {
			return err
		}
		seats = append(seats, l)
	}
	for i := range fronts {
		l := seats[i%agents]
		if i >= agents {
			l.front, l.folder = next(), filepath.Join(s.folder, fmt.Sprint("proxy", i+1))
			if err := os.Mkdir(l.folder, 0o700); err != nil {
				return err
			}
		}
		if err := s.startProxy(ctx, l, i+1); err != nil {
			return err
		}
	}
	return s.acquainted(ctx, agents-1)
}

// afterCluster is a configuration without the line of a cluster at its beginning.
func afterCluster(conf string) string {
	if rest, ok := strings.CutPrefix(conf, "cluster:"); ok {
		_, rest, _ = strings.Cut(rest, "\n")
		return rest
	}
	return conf
}

// startAgent starts agent number n, with the configuration of its proxy as well.
func (s *stage) startAgent(ctx context.Context, self string, l layout, conf string, n int) error {
	_, _, own, err := l.proxy.lay(l)
	if err != nil {
		return err
	}
	if err := templates.Write(l.folder, []templates.File{{Name: "pointsman.yaml", Text: own + conf}}); err != nil {
		return err
	}
	name := fmt.Sprint("agent ", n)
	if err := s.start(name, self, "serve", "--config", filepath.Join(l.folder, "pointsman.yaml")); err != nil {
		return err
	}
	s.admins = append(s.admins, l.admin)
	return s.await(ctx, "http://"+l.admin+"/readyz", name)
}

// startProxy starts proxy number n.
func (s *stage) startProxy(ctx context.Context, l layout, n int) error {
	files, args, _, err := l.proxy.lay(l)
	if err != nil {
		return err
	}
	if err := templates.Write(l.folder, files); err != nil {
		return err
	}
	name, command := fmt.Sprint(l.proxy.name, " ", n), slices.Clone(l.proxy.command)
	if err := s.start(name, command[0], append(command[1:], args...)...); err != nil {
		return err
	}
	s.urls = append(s.urls, "http://"+l.front)
	return s.await(ctx, "http://"+l.front+"/v1/models", name)
}

// acquainted waits until each agent knows so many others.
func (s *stage) acquainted(ctx context.Context, others int) error {
	for range 300 {
		all := true
		for _, a := range s.admins {
			st, err := status(ctx, a)
			if err != nil {
				return err
			}
			following := 0
			if st.Cluster != nil {
				for _, p := range st.Cluster.Peers {
					if p.State == "follows" {
						following++
					}
				}
			}
			all = all && following == others
		}
		if all {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("the agents do not find each other")
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

// status asks an agent for its status.
func status(ctx context.Context, address string) (*admin.Status, error) {
	page, err := fetch(ctx, "http://"+address+"/status")
	if err != nil {
		return nil, err
	}
	st := new(admin.Status)
	return st, sonic.UnmarshalString(page, st)
}

// settled waits until the feeds have reported every request, and returns the
// agents' pool then: the counts of all agents together.
func (s *stage) settled(ctx context.Context) (*decider.PoolStatus, error) {
	var sum decider.PoolStatus
	for range 50 {
		sum = decider.PoolStatus{}
		for i, a := range s.admins {
			st, err := status(ctx, a)
			if err != nil {
				return nil, err
			}
			if i == 0 {
				sum = st.Pools[0]
				continue
			}
			add(&sum, &st.Pools[0])
		}
		if sum.Reservations == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return &sum, nil
}

// add adds the counts of another agent.
func add(sum, p *decider.PoolStatus) {
	sum.Reservations = max(sum.Reservations, p.Reservations) // each knows those of all
	sum.Decisions += p.Decisions
	sum.FellOpen += p.FellOpen
	sum.PromptTokens += p.PromptTokens
	sum.CachedTokens += p.CachedTokens
	for end, n := range p.Outcomes {
		sum.Outcomes[end] += n
	}
	for i := range sum.Replicas {
		sum.Replicas[i].Chosen += p.Replicas[i].Chosen
		sum.Replicas[i].Served += p.Replicas[i].Served
		sum.Replicas[i].Failed += p.Replicas[i].Failed
	}
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
