package metrics

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"go.uber.org/goleak"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/sim/fakevllm"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(quietEngines); kind != "" {
		serveQuiet(kind)
	}
	goleak.VerifyTestMain(m)
}

// until waits for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 6000 { // a minute
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("timed out waiting for " + what)
}

// A scrape does not allocate, from the request to the report to the pool.
func TestAScrapeDoesNotAllocate(t *testing.T) {
	page := largePage(8)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // a server that does not allocate either
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		answer := append(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n", len(page)), page...)
		buf := make([]byte, 4096)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	}()
	d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 1 })
	d.Apply(decider.Config{Pools: []decider.PoolConfig{{Name: "llama", Policy: policy.LeastWork{}, Replicas: []decider.ReplicaConfig{{Name: "r0"}}}}})
	s := newScraper(d.Pool("llama"), "r0", l.Addr().String(), Options{}, newRawFetcher(l.Addr().String()), newReport(metrics.NewSet(), slog.New(slog.DiscardHandler)))
	n := testing.AllocsPerRun(200, func() { once(s) })
	if s.failures > 0 || !s.seen {
		t.Fatalf("%+v", s.Status())
	}
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
	s.fetcher.close()
	l.Close()
	<-done
}

// BenchmarkScraping measures the share of a core that scraping 64 engines takes, in
// the program and in the kernel. The engines are another process. Requests wait at all
// of them, or they are idle.
func BenchmarkScraping(b *testing.B) {
	for _, name := range []string{"waiting", "large", "idle"} {
		b.Run(name, func(b *testing.B) {
			addresses := otherProcess(b, quietEngines+"="+name)
			for b.Loop() {
				list, stop := scrape(b, addresses)
				time.Sleep(2 * time.Second)
				before, from, asked := cpu(b), time.Now(), answered(list)
				time.Sleep(10 * time.Second)
				spent, passed := cpu(b)-before, time.Since(from)
				b.ReportMetric(100*spent.Seconds()/passed.Seconds(), "%-of-a-core")
				b.ReportMetric(float64(answered(list)-asked)/passed.Seconds(), "scrapes/s")
				stop()
				for _, s := range list {
					if st := s.Status(); st.Failures > 0 || st.Answers == 0 {
						b.Fatalf("%+v", st)
					}
				}
			}
		})
	}
}

// scrape scrapes engines until stop is called.
func scrape(t testing.TB, addresses []string) (list []*Scraper, stop func()) {
	start := time.Now()
	d := decider.New(func() time.Duration { return time.Since(start) }, func() uint64 { return 1 })
	c := decider.PoolConfig{Name: "llama", Models: []string{"fake"}, Policy: policy.LeastWork{}}
	for i, a := range addresses {
		c.Replicas = append(c.Replicas, decider.ReplicaConfig{Name: fmt.Sprintf("r%d", i), Address: a})
	}
	d.Apply(decider.Config{Pools: []decider.PoolConfig{c}})
	p := NewPoller(metrics.NewSet(), slog.New(slog.DiscardHandler))
	for _, r := range c.Replicas {
		list = append(list, p.Add(d.Pool("llama"), r.Name, r.Address, Options{Kind: VLLM}, Events{Adapters: func([]string) {}, ModelsUnknown: func() {}, MaybeReplaced: func(bool) {}}))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	return list, func() { cancel(); <-done }
}

// quietEngines is the variable of the environment that turns the test binary into 64
// engines, which serve pages of the kind that it names.
const quietEngines = "POINTSMAN_TEST_QUIET_ENGINES"

// otherProcess runs the test binary with a variable of the environment, and returns
// the words of the first line that it prints.
func otherProcess(t testing.TB, variable string) []string {
	p := exec.Command(os.Args[0], "-test.run", "^$")
	p.Env = append(os.Environ(), variable)
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(line)
}

func answered(list []*Scraper) (n uint64) {
	for _, s := range list {
		n += s.Status().Answers
	}
	return n
}

// quietPage is the page of each engine for benchmarks.
func quietPage(kind string) []byte {
	if kind == "large" { // with the histograms of a busy vLLM
		return largePage(1)
	}
	s := fakevllm.New(fakevllm.Options{Name: "quiet", LoRA: []string{"sql"}})
	defer s.Close()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	page := w.Body.Bytes()
	if kind == "waiting" {
		lines := bytes.SplitAfter(page, []byte("\n"))
		for i, line := range lines {
			if bytes.HasPrefix(line, []byte("vllm:num_requests_waiting{")) {
				lines[i] = append(bytes.TrimSuffix(line, []byte("0\n")), "3\n"...)
			}
		}
		page = bytes.Join(lines, nil)
	}
	return page
}

// serveQuiet runs 64 servers of the same page and prints their addresses.
func serveQuiet(kind string) {
	page := quietPage(kind)
	answer := append(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n", len(page)), page...)
	for range 64 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Print(l.Addr(), " ")
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					buf := make([]byte, 4096)
					for {
						if _, err := c.Read(buf); err != nil {
							return
						}
						if _, err := c.Write(answer); err != nil {
							return
						}
					}
				}()
			}
		}()
	}
	fmt.Println()
	select {}
}

// cpu is the CPU time of this process.
func cpu(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
