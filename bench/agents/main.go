// Command agents measures the cost of several agents instead of one: it plays `pointsman
// demo` with four proxies and one agent, the control, two, and four, in alternating rounds,
// each with a seed of its own. It prints medians, and the medians of the ratios to the
// control of the same round, as a Markdown table.
//
//	go run ./bench/agents [-minutes 8] [-haproxy haproxy] [-haproxy ...] [-nginx nginx]
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"pointsman/loopback"
)

// commands are the commands that run proxies of one kind.
type commands []string

// String implements flag.Value.
func (c *commands) String() string { return strings.Join(*c, ", ") }

// Set implements flag.Value.
func (c *commands) Set(s string) error {
	*c = append(*c, s)
	return nil
}

var (
	haproxies, nginxes commands

	minutes  = flag.Float64("minutes", 8, "time for all rounds; none begins that would probably not end in it")
	rounds   = flag.Int("rounds", 100, "most rounds")
	requests = flag.Int("requests", 1000, "requests of a run")
	load     = flag.Float64("load", 0.8, "load of the demo")
	speed    = flag.Float64("speed", 4, "speed of the demo's replicas")
	mixed    = flag.Bool("mixed", true, "also the last HAProxy and the last nginx on one pool")
	nats     = flag.String("nats", "", "command of a NATS server, such as nats-server: the last HAProxy with four agents that share by it")
	binary   = flag.String("pointsman", "", "pointsman to measure; that of the working directory if empty")
)

// setting is what one run plays.
type setting struct{ agents, proxies int }

// settings of a round. All have the same number of proxies, so that they load the machine
// equally. The first is the control.
var settings = []setting{{1, 4}, {2, 4}, {4, 4}}

// front is a proxy, or two that take turns.
type front struct {
	name string
	args []string
}

// borrows reports whether it has no control of its own: one agent serves one kind of proxy,
// and needs no bus.
func (f front) borrows() bool {
	return strings.HasPrefix(f.name, "both") || slices.Contains(f.args, "--nats")
}

// figures are the figures of one run.
type figures struct {
	Version  string             `json:"version"`
	Served   int                `json:"served"`
	Failed   int                `json:"failed"`
	FellOpen int                `json:"fell_open"`
	TTFT     map[string]float64 `json:"ttft_ms"`
	HitRate  float64            `json:"hit_rate"`
}

func main() {
	log.SetFlags(0)
	flag.Var(&haproxies, "haproxy", "command that runs an HAProxy, arguments separated by spaces; may be repeated")
	flag.Var(&nginxes, "nginx", "likewise for nginx")
	flag.Parse()
	if len(haproxies)+len(nginxes) == 0 {
		haproxies, nginxes = commands{"haproxy"}, commands{"nginx"}
	}
	dir, err := os.MkdirTemp("", "pointsman-bench-")
	if err != nil {
		log.Fatal(err)
	}
	err = measure(dir)
	os.RemoveAll(dir)
	if err != nil {
		log.Fatal(err)
	}
}

// fronts are the proxies to measure; bus is the URL of a NATS server, or empty.
func fronts(bus string) (list []front) {
	for _, c := range haproxies {
		list = append(list, front{"HAProxy", []string{"--proxy", "haproxy", "--haproxy", c}})
	}
	for _, c := range nginxes {
		list = append(list, front{"nginx", []string{"--proxy", "nginx", "--nginx", c}})
	}
	if h := len(haproxies); bus != "" && h > 0 {
		list = append(list, front{"HAProxy, NATS beside it", []string{"--proxy", "haproxy", "--haproxy", haproxies[h-1], "--nats", bus}})
	}
	if h, n := len(haproxies), len(nginxes); *mixed && h > 0 && n > 0 {
		list = append(list, front{"both", []string{"--proxy", "haproxy,nginx", "--haproxy", haproxies[h-1], "--nginx", nginxes[n-1]}})
	}
	return list
}

// startNATS starts the NATS server, if one is wanted.
func startNATS() (bus string, stop func(), err error) {
	if *nats == "" {
		return "", func() {}, nil
	}
	port, err := loopback.Ports(1)
	if err != nil {
		return "", nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	words := strings.Fields(*nats)
	cmd := exec.Command(words[0], append(words[1:], "-a", "127.0.0.1", "-p", strconv.Itoa(port))...)
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	for range 100 {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			return "nats://" + address, stop, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	return "", nil, fmt.Errorf("%s does not listen", *nats)
}

func measure(dir string) error {
	bin := *binary
	if bin == "" {
		bin = filepath.Join(dir, "pointsman")
		build := exec.Command("go", "build", "-o", bin, "./cmd/pointsman")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("building pointsman: %w", err)
		}
	}
	bus, stop, err := startNATS()
	if err != nil {
		return err
	}
	defer stop()
	list := fronts(bus)
	results := make([]map[setting][]figures, len(list)) // by round
	for i := range results {
		results[i] = map[setting][]figures{}
	}
	began, longest := time.Now(), time.Duration(0)
	limit := time.Duration(*minutes * float64(time.Minute))
	done := 0
	for ; done < *rounds && (done == 0 || time.Since(began)+longest < limit); done++ {
		start := time.Now()
		for i, f := range list {
			for k := range settings {
				s := settings[(k+done)%len(settings)] // the first one has the machine to itself
				if f.borrows() && s.agents == 1 || slices.Contains(f.args, "--nats") && s.agents < 4 {
					continue
				}
				r, err := play(bin, f, s, done+1)
				if err != nil {
					return err
				}
				results[i][s] = append(results[i][s], r)
				fmt.Fprintf(os.Stderr, "round %d, %s %s, %d agents, %d proxies: p50 %.1f p90 %.1f ms, hit rate %.1f %%\n",
					done+1, f.name, r.Version, s.agents, s.proxies, r.TTFT["p50"], r.TTFT["p90"], 100*r.HitRate)
			}
		}
		longest = max(longest, time.Since(start))
	}
	fmt.Printf("%s, %d processors, %d rounds of %d requests at load %g, replicas %g times as fast as a 70B model, in %s\n\n",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), done, *requests, *load, *speed, time.Since(began).Round(time.Second))
	fmt.Println("| proxy | agents | proxies | p50, ms | p90 | range | p99 | hit rate | p90 against one agent | hit rate |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	for i, f := range list {
		control := results[i]
		if f.borrows() {
			control = results[len(haproxies)-1]
		}
		if f.name == "both" { // the slower of the two
			if other := results[len(haproxies)+len(nginxes)-1]; median(other[settings[0]], p90) > median(control[settings[0]], p90) {
				control = other
			}
		}
		for _, s := range settings {
			if rows := results[i][s]; len(rows) > 0 {
				fmt.Println(row(f.name, s, rows, control[settings[0]]))
			}
		}
	}
	return nil
}

// play plays the demo once.
func play(bin string, f front, s setting, seed int) (r figures, err error) {
	args := append([]string{"demo", "--json", "--agents", strconv.Itoa(s.agents), "--proxies", strconv.Itoa(s.proxies), "--seed", strconv.Itoa(seed),
		"--requests", strconv.Itoa(*requests), "--load", fmt.Sprint(*load), "--speed", fmt.Sprint(*speed)}, f.args...)
	cmd := exec.Command(bin, args...)
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("pointsman %s: %w\n%s", strings.Join(args, " "), err, &errors)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, err
	}
	if r.Failed > 0 || r.FellOpen > 0 || r.Served != *requests {
		return r, fmt.Errorf("pointsman %s: %d of %d served, %d failed, %d without a decision", strings.Join(args, " "), r.Served, *requests, r.Failed, r.FellOpen)
	}
	return r, nil
}

func p90(r figures) float64     { return r.TTFT["p90"] }
func hitRate(r figures) float64 { return r.HitRate }

// row is one line of the table.
func row(name string, s setting, rows, control []figures) string {
	at := func(p string) float64 { return median(rows, func(r figures) float64 { return r.TTFT[p] }) }
	all := values(rows, p90)
	against := func(f func(figures) float64) string {
		if s.agents == 1 || len(control) != len(rows) {
			return ""
		}
		ratios := make([]float64, len(rows))
		for i := range rows {
			ratios[i] = f(rows[i]) / f(control[i])
		}
		return fmt.Sprintf("%+.1f %%", 100*(middle(ratios)-1))
	}
	return fmt.Sprintf("| %s %s | %d | %d | %.1f | %.1f | %.1f–%.1f | %.1f | %.1f %% | %s | %s |", name, rows[0].Version, s.agents, s.proxies,
		at("p50"), at("p90"), slices.Min(all), slices.Max(all), at("p99"), 100*median(rows, hitRate), against(p90), against(hitRate))
}

func values(rows []figures, f func(figures) float64) (list []float64) {
	for _, r := range rows {
		list = append(list, f(r))
	}
	return list
}

func median(rows []figures, f func(figures) float64) float64 { return middle(values(rows, f)) }

// middle is the median.
func middle(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	n := len(list)
	if n == 0 {
		return 0
	}
	return (list[(n-1)/2] + list[n/2]) / 2
}
