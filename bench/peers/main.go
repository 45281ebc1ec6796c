// Command peers compares pointsman on HAProxy and nginx with the plain proxies and with
// other routers, on the same replicas, in turns of one run. It measures the latency and
// processor time of a request, failures when an engine or the router is killed, and the
// time to first token, and writes the tables of bench/peers.md. test/setup.sh peers
// installs the routers; the page reports those that are missing.
//
//	go run ./bench/peers [-rounds 10] [-only haproxy,sglang] [-part latency,cpu] [-out bench/peers.md]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"pointsman/bench/stand"
	"pointsman/templates"
)

var (
	rounds  = flag.Int("rounds", 10, "how often latency, cpu and throughput are measured; with all rivals each time takes about 25 s")
	only    = flag.String("only", "", "rivals to run, separated by commas; all by default")
	part    = flag.String("part", strings.Join(parts, ","), "what to measure, separated by commas")
	out     = flag.String("out", "", "file to write, when all has ended; standard output by default")
	haFlag  = flag.String("haproxy", "haproxy", "command that runs HAProxy, arguments separated by spaces")
	ngFlag  = flag.String("nginx", "nginx", "command that runs nginx, likewise")
	limit   = flag.Duration("limit", 30*time.Minute, "after this time it ends without a result")
	replica = flag.String("replica", "", "internal: serve replicas on this address")
	null    = flag.String("null", "", "internal: be an agent that does nothing, for haproxy or nginx, on the socket and with the feed in the arguments")
	count   = flag.Int("replicas", 1, "internal")
	delay   = flag.Duration("delay", 0, "internal")
)

// parts are what can be measured.
var parts = []string{"latency", "cpu", "throughput", "failures", "quality"}

// Shared by the scenes.
var (
	folder  string // of all files
	binary  string // pointsman
	self    string
	haproxy []string
	nginx   []string
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	if *replica != "" {
		log.Fatal(stand.ServeReplicas(*count, *replica, *delay))
	}
	if *null != "" {
		log.Fatal(stand.ServeNull(*null, flag.Arg(0), flag.Arg(1), upstreams()))
	}
	haproxy, nginx = command(*haFlag), command(*ngFlag)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	ctx, cancel := context.WithTimeout(ctx, *limit)
	err := run(ctx)
	cancel()
	stop()
	if folder != "" {
		os.RemoveAll(folder)
	}
	if err != nil {
		log.Fatal("peers: ", err)
	}
}

// command splits a command, and finds its program also outside of a plain user's PATH.
func command(text string) []string {
	argv := strings.Fields(text)
	if len(argv) == 0 {
		argv = []string{"false"}
	}
	if _, err := exec.LookPath(argv[0]); err != nil {
		if path, err := exec.LookPath("/usr/sbin/" + argv[0]); err == nil {
			argv[0] = path
		}
	}
	return argv
}

func run(ctx context.Context) error {
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	selected := strings.Split(*part, ",")
	for _, p := range selected {
		if !slices.Contains(parts, p) {
			return fmt.Errorf("-part %q: want one or more of %s", p, strings.Join(parts, ", "))
		}
	}
	if *rounds < 1 || *rounds > 100 {
		return errors.New("-rounds: want 1 to 100")
	}
	if err := build(); err != nil {
		return err
	}
	load := loadAverage()
	b := newBench(chosen, selected)
	if b.has("latency") || b.has("cpu") || b.has("throughput") {
		if err := b.speeds(ctx); err != nil {
			return err
		}
	}
	if b.has("failures") {
		if err := b.failures(ctx); err != nil {
			return err
		}
	}
	if b.has("quality") {
		if err := b.qualities(ctx); err != nil {
			return err
		}
	}
	page := b.page(described(load))
	if *out == "" {
		_, err = os.Stdout.WriteString(page)
		return err
	}
	return os.WriteFile(*out, []byte(page), 0o644)
}

// upstreams are the names of the replicas in a rendered nginx.
func upstreams() (names []string) {
	for i := range fleet {
		names = append(names, templates.NginxUpstream("llama", fmt.Sprintf("r%d", i+1)))
	}
	return names
}

// choose returns the rivals of those names. Without names it returns all but those that
// show what a part costs.
func choose(names string) ([]*rival, error) {
	if names == "" {
		return slices.DeleteFunc(slices.Clone(rivals), func(r *rival) bool { return r.part }), nil
	}
	var chosen []*rival
	var known []string
	wanted := strings.Split(names, ",")
	for _, r := range rivals {
		known = append(known, r.name)
		if slices.Contains(wanted, r.name) {
			chosen = append(chosen, r)
		}
	}
	for _, name := range wanted {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("-only %q: want one or more of %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// build builds pointsman into the folder of all files.
func build() (err error) {
	if self, err = os.Executable(); err != nil {
		return err
	}
	if folder, err = os.MkdirTemp("", "pointsman-peers-"); err != nil {
		return err
	}
	if err := os.Chmod(folder, 0o755); err != nil { // HAProxy and nginx may drop root
		return err
	}
	binary = filepath.Join(folder, "pointsman")
	if text, err := exec.Command("go", "build", "-o", binary, "./cmd/pointsman").CombinedOutput(); err != nil {
		return fmt.Errorf("build (run this in the repository): %s", text)
	}
	return nil
}

// bench holds the rivals and their figures so far.
type bench struct {
	rivals []*rival
	parts  []string
	begun  time.Time

	figures map[string]map[string][]float64 // by cell and rival, one for each round
	broken  map[string]string               // by rival: why it did not run, or stopped
	lost    map[string]failed
	seen    map[string]map[float64]quality
}

func newBench(chosen []*rival, parts []string) *bench {
	b := &bench{rivals: chosen, parts: parts, begun: time.Now(), figures: map[string]map[string][]float64{},
		broken: map[string]string{}, lost: map[string]failed{}, seen: map[string]map[float64]quality{}}
	for _, r := range chosen {
		if r.missing != "" {
			b.fail(r, errors.New(r.missing))
		}
	}
	return b
}

func (b *bench) has(part string) bool { return slices.Contains(b.parts, part) }

// running are the rivals that have not failed.
func (b *bench) running() (list []*rival) {
	for _, r := range b.rivals {
		if b.broken[r.name] == "" {
			list = append(list, r)
		}
	}
	return list
}

// fail removes a rival from the run; the page gives the reason.
func (b *bench) fail(r *rival, err error) {
	b.broken[r.name] = err.Error()
	b.say("%s is left out: %v", r.name, err)
}

// say reports progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.0fs  %s\n", time.Since(b.begun).Seconds(), fmt.Sprintf(format, args...))
}
