// Command overhead measures the latency that a decision adds to a request. It
// compares the same HAProxy without an agent, with a null SPOE agent that
// returns an empty answer, and with pointsman, in alternating rounds of one run.
// It prints medians and their ratios as a Markdown table. With -nginx, the proxy
// is an nginx, and the null agent a fasthttp server that returns the replicas in
// turn.
//
//	go run ./bench/overhead [-rounds 12] [-requests 400] [-haproxy haproxy | -nginx nginx]
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/negasus/haproxy-spoe-go/agent"
	"github.com/negasus/haproxy-spoe-go/logger"
	"github.com/negasus/haproxy-spoe-go/request"
	"github.com/valyala/fasthttp"

	"pointsman/templates"
)

var (
	rounds   = flag.Int("rounds", 12, "rounds of each case; each round gives one median")
	requests = flag.Int("requests", 400, "requests per round")
	proxy    = flag.String("haproxy", "haproxy", "command that runs HAProxy, arguments separated by spaces")
	nginx    = flag.String("nginx", "", "command that runs nginx, likewise; used instead of HAProxy")
	role     = flag.String("role", "", "internal: null-agent, null-nginx or replica")
	listen   = flag.String("listen", "", "internal")
)

const (
	replicas = 8
	warmup   = 200
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	switch *role {
	case "null-agent":
		serveNull()
		return
	case "null-nginx":
		serveNullNginx()
		return
	case "replica":
		serveReplica()
		return
	}
	b := newBench()
	defer b.close()
	b.measure()
}

// serveNull is the null agent: only the library that pointsman uses.
func serveNull() {
	l, err := net.Listen("unix", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(agent.New(func(*request.Request) {}, logger.NewNop()).Serve(l))
}

// serveReplica answers every request immediately, on one loopback address for
// each replica.
func serveReplica() {
	answer := []byte(`{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}`)
	s := fasthttp.Server{MaxRequestBodySize: 64 << 20, Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.SetContentType("application/json")
		ctx.SetBody(answer)
	}}
	for i := 1; i < replicas; i++ {
		go func() { log.Fatal(s.ListenAndServe(loopback(i, *listen))) }()
	}
	log.Fatal(s.ListenAndServe(loopback(0, *listen)))
}

// loopback returns the address of replica i: its own host in 127.0.0.0/8, and the
// port of address.
func loopback(i int, address string) string {
	_, port, err := net.SplitHostPort(address)
	check(err)
	return fmt.Sprintf("127.0.0.%d:%s", i+1, port)
}

// bench runs one proxy per variant, all in front of the same replicas.
type bench struct {
	folder   string
	procs    []*exec.Cmd
	variants []variant
}

// variant is a proxy with one kind of agent, or none.
type variant struct{ name, url string }

func newBench() *bench {
	folder, err := os.MkdirTemp("", "pointsman-bench-")
	check(err)
	b := &bench{folder: folder}
	self, err := os.Executable()
	check(err)
	binary := filepath.Join(folder, "pointsman")
	out, err := exec.Command("go", "build", "-o", binary, "./cmd/pointsman").CombinedOutput()
	if err != nil {
		log.Fatalf("build (run this in the repository): %s", out)
	}

	replica, feed := freePort(), freePort()
	b.start(self, "-role", "replica", "-listen", replica)
	null := filepath.Join(folder, "null.sock")
	role, listen, add := "null-agent", "spoe: %q", b.addHAProxy
	if *nginx != "" {
		role, listen, add = "null-nginx", "spoe: off, nginx: %q", b.addNginx
	}
	b.start(self, "-role", role, "-listen", null)
	ours := filepath.Join(folder, "spoe.sock")
	var conf strings.Builder
	fmt.Fprintf(&conf, "listen: {"+listen+", feed: %q, admin: off}\npools:\n  llama:\n    models: [m]\n    replicas:\n", "unix://"+ours, feed)
	pool := templates.Pool{Name: "llama", Models: []string{"m"}, HealthPath: "none"}
	for i := range replicas {
		r := templates.Replica{Name: fmt.Sprintf("r%d", i+1), Address: loopback(i, replica)}
		pool.Replicas = append(pool.Replicas, r)
		fmt.Fprintf(&conf, "      %s: {address: %q}\n", r.Name, r.Address)
	}
	yaml := filepath.Join(folder, "pointsman.yaml")
	check(os.WriteFile(yaml, []byte(conf.String()), 0o600))
	b.start(binary, "serve", "--config", yaml)

	add("plain", "", feed, pool)
	add("null agent", null, feed, pool)
	add("pointsman", ours, feed, pool)
	return b
}

// addHAProxy starts an HAProxy that uses the agent at socket. Without a socket,
// it removes the lines for the agent and the feed from the same configuration.
func (b *bench) addHAProxy(name, socket, feed string, pool templates.Pool) {
	command := strings.Fields(*proxy)
	version, err := exec.Command(command[0], append(command[1:], "-v")...).Output()
	check(err)
	v, err := templates.ParseVersion(string(version))
	check(err)
	if socket == "" {
		socket = "/nowhere"
	}
	front := freePort()
	dir := filepath.Join(b.folder, "haproxy-"+strings.Fields(name)[0])
	check(os.Mkdir(dir, 0o700))
	files, err := templates.RenderHAProxy(templates.HAProxy{
		Version: v, Bind: front, AgentAddress: "unix://" + socket, FeedAddress: feed,
		SPOEConf: filepath.Join(dir, templates.SPOEFile), Pools: []templates.Pool{pool},
		Bufsize:           256 << 10, // so that all of the largest body is sent to the agent
		ProcessingTimeout: time.Second,
	})
	check(err)
	for _, f := range files {
		text := f.Text
		if name == "plain" {
			text = withoutAgent(text)
		}
		check(os.WriteFile(filepath.Join(dir, f.Name), []byte(text), 0o600))
	}
	b.start(command[0], append(command[1:], "-db", "-f", filepath.Join(dir, templates.ConfigFile))...)
	b.waitFor(name, front)
}

// waitFor waits until the proxy at front serves, and adds it as a variant.
func (b *bench) waitFor(name, front string) {
	v := variant{name, "http://" + front + "/v1/chat/completions"}
	var err error
	for range 100 {
		if err = v.post(new(fasthttp.HostClient), body(100)); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	check(err)
	b.variants = append(b.variants, v)
}

// withoutAgent removes the filter, the request to the agent, and the feed.
func withoutAgent(text string) string {
	var keep []string
	for line := range strings.Lines(text) {
		l := strings.TrimSpace(line)
		if strings.HasPrefix(l, "filter spoe") || strings.HasPrefix(l, "http-request send-spoe-group") ||
			strings.HasPrefix(l, "log ring@") {
			continue
		}
		keep = append(keep, line)
	}
	return strings.Join(keep, "")
}

func (b *bench) start(command string, args ...string) {
	cmd := exec.Command(command, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	var output bytes.Buffer
	cmd.Stderr = &output
	check(cmd.Start())
	b.procs = append(b.procs, cmd)
}

func (b *bench) close() {
	for _, p := range slices.Backward(b.procs) {
		// A killed nginx would not stop its worker processes.
		_ = p.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(2*time.Second, func() { _ = p.Process.Kill() })
		_ = p.Wait()
		kill.Stop()
	}
	os.RemoveAll(b.folder)
}

// measure prints the table.
func (b *bench) measure() {
	fmt.Printf("%s, %s/%s, %d cores; %d rounds of %d requests each, in turn; median of the rounds' medians ± half their spread.\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), *rounds, *requests)
	fmt.Println("| body | concurrency | plain µs | null agent µs | pointsman µs | pointsman / null agent |")
	fmt.Println("|---|---|---|---|---|---|")
	for _, size := range []int{1 << 10, 16 << 10, 128 << 10} {
		for _, concurrency := range []int{1, 32} {
			medians := make([][]float64, len(b.variants))
			ratios := []float64{}
			text := body(size)
			clients := make([]*fasthttp.HostClient, len(b.variants))
			for i, v := range b.variants {
				clients[i] = &fasthttp.HostClient{MaxConns: concurrency}
				v.round(clients[i], text, concurrency, warmup)
			}
			for n := range *rounds {
				for k := range b.variants {
					i := (k + n) % len(b.variants) // no variant is always first
					medians[i] = append(medians[i], b.variants[i].round(clients[i], text, concurrency, *requests))
				}
				ratios = append(ratios, medians[2][n]/medians[1][n])
			}
			fmt.Printf("| %d KiB | %d | %s | %s | %s | %.3f |\n", size>>10, concurrency,
				summary(medians[0]), summary(medians[1]), summary(medians[2]), median(ratios))
		}
	}
}

// round sends n requests and returns their median latency in µs.
func (v variant) round(client *fasthttp.HostClient, body []byte, concurrency, n int) float64 {
	took := make([]float64, n)
	var wg sync.WaitGroup
	for c := range concurrency {
		wg.Go(func() {
			for i := c; i < n; i += concurrency {
				start := time.Now()
				check(v.post(client, body))
				took[i] = float64(time.Since(start).Microseconds())
			}
		})
	}
	wg.Wait()
	return median(took)
}

func (v variant) post(client *fasthttp.HostClient, body []byte) error {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI(v.url)
	client.Addr = string(req.URI().Host())
	req.Header.SetMethod(fasthttp.MethodPost)
	req.Header.SetContentType("application/json")
	req.SetBody(body)
	if err := client.DoTimeout(req, resp, 5*time.Second); err != nil {
		return err
	}
	if resp.StatusCode() != fasthttp.StatusOK {
		return fmt.Errorf("%s: %d %s", v.name, resp.StatusCode(), resp.Body())
	}
	return nil
}

// body returns a chat request of about size bytes.
func body(size int) []byte {
	const head, tail = `{"model":"m","messages":[{"role":"system","content":"You answer."},{"role":"user","content":"`, `"}],"stream":false,"max_tokens":64}`
	text := strings.Repeat("the quick brown fox jumps over the lazy dog\\n", size/45+1)
	n := max(0, size-len(head)-len(tail))
	return []byte(head + strings.TrimRight(text[:n], "\\") + tail)
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return s[len(s)/2]
}

// summary returns the median and half the spread.
func summary(values []float64) string {
	s := slices.Sorted(slices.Values(values))
	return fmt.Sprintf("%.0f ± %.0f", s[len(s)/2], (s[len(s)-1]-s[0])/2)
}

func freePort() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	defer l.Close()
	return l.Addr().String()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
