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
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/negasus/haproxy-spoe-go/agent"
	"github.com/negasus/haproxy-spoe-go/logger"
	"github.com/negasus/haproxy-spoe-go/request"
	"github.com/valyala/fasthttp"

	"pointsman/bench/stand"
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
		check(stand.ServeReplicas(replicas, *listen, 0))
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

// bench runs one proxy per variant, all in front of the same replicas.
type bench struct {
	folder   string
	procs    stand.Processes
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
	fmt.Fprintf(&conf, "listen: {"+listen+", feed: %q, admin: off}\npools:\n  llama:\n    models: [%s]\n    replicas:\n", "unix://"+ours, feed, stand.Model)
	pool := templates.Pool{Name: "llama", Models: []string{stand.Model}, HealthPath: "none"}
	for i := range replicas {
		r := templates.Replica{Name: fmt.Sprintf("r%d", i+1), Address: stand.Loopback(i, replica)}
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
		Bufsize:           256 << 10, // so that the agent gets all of the largest body
		ProcessingTimeout: time.Second,
	})
	check(err)
	for _, f := range files {
		text := f.Text
		if name == "plain" {
			text = stand.WithoutAgent(text)
		}
		check(os.WriteFile(filepath.Join(dir, f.Name), []byte(text), 0o600))
	}
	b.start(command[0], append(command[1:], "-db", "-f", filepath.Join(dir, templates.ConfigFile))...)
	b.waitFor(name, front)
}

// waitFor waits until the proxy at front serves, and adds it as a variant.
func (b *bench) waitFor(name, front string) {
	v := variant{name, "http://" + front}
	var err error
	for range 100 {
		if _, err = stand.Post(stand.NewClient(v.url, 1), v.url, stand.Body(100, false), 5*time.Second); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	check(err)
	b.variants = append(b.variants, v)
}

func (b *bench) start(command string, args ...string) {
	_, err := b.procs.Start(command, args...)
	check(err)
}

func (b *bench) close() {
	b.procs.Stop()
	os.RemoveAll(b.folder)
}

// measure prints the table.
func (b *bench) measure() {
	fmt.Printf("%s, %s/%s, %d cores; %d rounds of %d requests each, in turn; median of the rounds' medians ± half their spread.\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), *rounds, *requests)
	fmt.Println("| body | concurrency | plain µs | null agent µs | pointsman µs | pointsman / null agent | pointsman / plain |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, size := range []int{1 << 10, 16 << 10, 128 << 10} {
		for _, concurrency := range []int{1, 32} {
			medians := make([][]float64, len(b.variants))
			var overNull, overPlain []float64
			text := stand.Body(size, false)
			clients := make([]*fasthttp.HostClient, len(b.variants))
			for i, v := range b.variants {
				clients[i] = stand.NewClient(v.url, concurrency)
				v.round(clients[i], text, concurrency, warmup)
			}
			for n := range *rounds {
				for k := range b.variants {
					i := (k + n) % len(b.variants) // no variant is always first
					medians[i] = append(medians[i], b.variants[i].round(clients[i], text, concurrency, *requests))
				}
				overNull = append(overNull, medians[2][n]/medians[1][n])
				overPlain = append(overPlain, medians[2][n]/medians[0][n])
			}
			fmt.Printf("| %d KiB | %d | %s | %s | %s | %.3f | %.2f |\n", size>>10, concurrency,
				summary(medians[0]), summary(medians[1]), summary(medians[2]), stand.Median(overNull), stand.Median(overPlain))
		}
	}
}

// round sends n requests and returns their median latency in µs.
func (v variant) round(client *fasthttp.HostClient, body []byte, concurrency, n int) float64 {
	l := stand.Closed(client, v.url, body, concurrency, n, time.Hour)
	if l.Err != nil {
		log.Fatalf("%s: %v", v.name, l.Err)
	}
	return stand.Median(l.Latencies)
}

// summary returns the median and half the spread.
func summary(values []float64) string {
	return fmt.Sprintf("%.0f ± %.0f", stand.Median(values), stand.Spread(values))
}

// freePort returns an address on which nobody listens.
func freePort() string {
	address, err := stand.FreePort()
	check(err)
	return address
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
