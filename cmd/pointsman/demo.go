package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/admin"
	"pointsman/templates"
)

type demoCmd struct {
	Proxy    string  `default:"haproxy" enum:"haproxy" help:"The proxy: haproxy."`
	HAProxy  string  `name:"haproxy" default:"haproxy" help:"Command that runs HAProxy, with its arguments separated by spaces (${default})."`
	Policy   string  `default:"least_requests" help:"Routing policy (${default})."`
	Requests int     `default:"600" help:"Requests to send (${default})."`
	Replicas int     `default:"4" help:"Fake replicas to start (${default})."`
	Clients  int     `default:"24" help:"Clients that send at the same time (${default})."`
	Speed    float64 `default:"20" help:"How many times faster than a 70B model the fake replicas are (${default})."`
	Seed     uint64  `default:"1" help:"Seed of the workload (${default})."`
	JSON     bool    `help:"Print the result as JSON; progress goes to standard error."`
}

// demoResult is the object that --json prints.
type demoResult struct {
	Proxy         string                 `json:"proxy"`
	Version       string                 `json:"version"`
	Policy        string                 `json:"policy"`
	Requests      int                    `json:"requests"`
	Served        int                    `json:"served"`
	Failed        int                    `json:"failed"`
	Decided       uint64                 `json:"decided"`
	FellOpen      uint64                 `json:"fell_open"`
	Outcomes      map[string]uint64      `json:"outcomes"`
	InFlightAfter int                    `json:"in_flight_after"`
	TTFT          percentiles            `json:"ttft_ms"`
	HitRate       float64                `json:"hit_rate"`
	PerReplica    map[string]replicaLoad `json:"per_replica"`

	errors []string
}

type percentiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

type replicaLoad struct {
	Requests     uint64  `json:"requests"`
	PromptTokens uint64  `json:"prompt_tokens"`
	HitRate      float64 `json:"hit_rate"`
}

func (c *demoCmd) Run() error {
	if c.Requests < 1 || c.Replicas < 1 || c.Replicas > 64 || c.Clients < 1 || c.Clients > 1000 {
		return errors.New("want at least 1 request, 1 to 64 replicas and 1 to 1000 clients")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	stage, err := c.build(ctx)
	if err != nil {
		return err
	}
	defer stage.close()

	say := os.Stdout
	if c.JSON {
		say = os.Stderr
	}
	fmt.Fprintf(say, "HAProxy %s on %s, %d fake replicas, policy %s, %d requests from %d clients\n",
		stage.version, stage.url, c.Replicas, c.Policy, c.Requests, c.Clients)
	work := newWorkload(c.Seed, c.Requests)
	runCtx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() { work.run(runCtx, stage.url, c.Clients); close(done) }()
	showProgress(say, work, c.Requests, done)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}

	r, err := c.result(ctx, stage, work)
	if err != nil {
		return err
	}
	if c.JSON {
		b, err := sonic.ConfigStd.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		fmt.Println(string(b))
	} else {
		r.print(os.Stdout)
	}
	if r.Failed > 0 {
		return fmt.Errorf("%d requests failed", r.Failed)
	}
	return nil
}

// stage is what the demo plays on: replicas, agent and proxy, each a process
// of its own.
type stage struct {
	folder  string
	procs   []*process
	version string
	url     string // of the proxy
	admin   string // host:port of the agent's
	engines []string
}

// close ends the processes, the proxy first.
func (s *stage) close() {
	for i := len(s.procs) - 1; i >= 0; i-- {
		s.procs[i].stop()
	}
	os.RemoveAll(s.folder)
}

// build starts the stage and waits until it serves.
func (c *demoCmd) build(ctx context.Context) (*stage, error) {
	s := &stage{}
	var err error
	if s.folder, err = os.MkdirTemp("", "pointsman-demo-"); err != nil {
		return nil, err
	}
	if err := c.raise(ctx, s); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (c *demoCmd) raise(ctx context.Context, s *stage) error {
	proxy := strings.Fields(c.HAProxy)
	if len(proxy) == 0 {
		return errors.New("--haproxy is empty")
	}
	version, text, err := askHAProxy(proxy)
	if err != nil {
		return fmt.Errorf("%w (on Debian: apt-get install haproxy)", err)
	}
	s.version = text
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ports, err := freePorts(c.Replicas + 3)
	if err != nil {
		return err
	}
	feed, front := ports[c.Replicas], ports[c.Replicas+1]
	s.admin = ports[c.Replicas+2]
	s.url = "http://" + front

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
	fmt.Fprintf(&conf, "pools:\n  llama:\n    models: [demo]\n    policy: %s\n    engine: vllm\n    replicas:\n", c.Policy)
	for i, address := range ports[:c.Replicas] {
		name := fmt.Sprintf("r%d", i+1)
		s.engines = append(s.engines, "http://"+address)
		o.Pools[0].Replicas = append(o.Pools[0].Replicas, templates.Replica{Name: name, Address: address})
		fmt.Fprintf(&conf, "      %s: {address: %q}\n", name, address)
		if err := s.start(name, self, "engine", "--listen", address, "--name", name, "--model", "demo",
			"--profile", "70b", "--speed", fmt.Sprint(c.Speed), "--cache-tokens", "60000"); err != nil {
			return err
		}
	}
	files, err := templates.RenderHAProxy(o)
	if err != nil {
		return err
	}
	yaml := filepath.Join(s.folder, "pointsman.yaml")
	files = append(files, templates.File{Name: "pointsman.yaml", Text: conf.String()})
	if err := writeFiles(s.folder, files); err != nil {
		return err
	}
	if err := s.start("agent", self, "serve", "--config", yaml); err != nil {
		return err
	}
	if err := s.await(ctx, "http://"+s.admin+"/readyz", "agent"); err != nil {
		return err
	}
	for i, e := range s.engines {
		if err := s.await(ctx, e+"/health", fmt.Sprintf("r%d", i+1)); err != nil {
			return err
		}
	}
	args := append(proxy[1:], "-db", "-f", filepath.Join(s.folder, templates.ConfigFile))
	if err := s.start("haproxy", proxy[0], args...); err != nil {
		return err
	}
	return s.await(ctx, s.url+"/v1/models", "haproxy")
}

// result gathers what the clients, the agent and the replicas saw.
func (c *demoCmd) result(ctx context.Context, s *stage, w *workload) (*demoResult, error) {
	st, err := s.settled(ctx)
	if err != nil {
		return nil, err
	}
	pool := st.Pools[0]
	r := &demoResult{
		Proxy: c.Proxy, Version: s.version, Policy: c.Policy, Requests: c.Requests,
		Served: w.served, Failed: w.failed, Decided: pool.Decisions - pool.Stats.Undecided, FellOpen: pool.FellOpen,
		Outcomes: pool.Outcomes, InFlightAfter: pool.Reservations,
		TTFT: percentilesOf(w.ttft), PerReplica: map[string]replicaLoad{}, errors: w.errors,
	}
	var hits, queries float64
	for i, rep := range pool.Replicas {
		page, err := fetch(ctx, s.engines[i]+"/metrics")
		if err != nil {
			return nil, err
		}
		h := metric(page, "vllm:prefix_cache_hits_total")
		q := metric(page, "vllm:prefix_cache_queries_total")
		hits, queries = hits+h, queries+q
		r.PerReplica[rep.Name] = replicaLoad{rep.Served, uint64(metric(page, "vllm:prompt_tokens_total")), ratio(h, q)}
	}
	r.HitRate = ratio(hits, queries)
	return r, nil
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
