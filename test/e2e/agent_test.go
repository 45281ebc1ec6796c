package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pointsman/test/proxies"
)

// agent is `pointsman serve` as a process that can be ended and started again.
type agent struct {
	t      testing.TB
	config string
	admin  string // host:port
	log    output
	cmd    *exec.Cmd
	ended  chan struct{}
}

// output collects what a process writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// newAgent returns an agent that is not started. It ends with the test, which
// fails when the log holds a panic or a data race.
func newAgent(t testing.TB, config, admin string) *agent {
	a := &agent{t: t, config: config, admin: admin}
	t.Cleanup(func() {
		if a.cmd != nil {
			a.cmd.Process.Signal(syscall.SIGCONT)
			a.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-a.ended:
			case <-time.After(10 * time.Second):
				t.Errorf("the agent does not end at SIGTERM")
				a.kill()
			}
		}
		text := a.log.String()
		if strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic") {
			t.Errorf("the agent panicked or raced")
		}
		if t.Failed() {
			t.Logf("the agent wrote:\n%s", text)
		}
	})
	return a
}

// start starts the process and waits until it decides.
func (a *agent) start() {
	a.t.Helper()
	cmd := exec.Command(binary, "serve", "--config", a.config)
	cmd.Stdout, cmd.Stderr = &a.log, &a.log
	proxies.EndWithTest(cmd, syscall.SIGKILL)
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	a.cmd, a.ended = cmd, ended
	eventually(a.t, 10*time.Second, "the agent is ready", func() (bool, string) {
		_, err := a.get("/readyz")
		return err == nil, fmt.Sprint(err)
	})
}

// kill ends the process by SIGKILL.
func (a *agent) kill() {
	a.cmd.Process.Kill()
	<-a.ended
	a.cmd = nil
}

// signal sends sig to the process.
func (a *agent) signal(sig os.Signal) {
	a.t.Helper()
	if err := a.cmd.Process.Signal(sig); err != nil {
		a.t.Fatal(err)
	}
}

// ejected is the state of a replica that has failed, for a while.
const ejected = "ejected"

var adminClient = http.Client{Timeout: 5 * time.Second}

// get asks the admin address.
func (a *agent) get(path string) ([]byte, error) {
	resp, err := adminClient.Get("http://" + a.admin + path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, resp.Status)
	}
	return b, err
}

// replicaStatus and poolStatus are the parts of /status that tests look at, as
// an operator's script would read them.
type replicaStatus struct {
	Name     string `json:"name"`
	Address  string `json:"address"`
	State    string `json:"state"`
	Weight   int    `json:"weight"`
	InFlight int    `json:"in_flight"`
	Waiting  int    `json:"waiting"`
	Tokens   int    `json:"tokens"`
	Chosen   int    `json:"chosen"`
	Served   int    `json:"served"`
	Failed   int    `json:"failed"`
}

type poolStatus struct {
	Name         string          `json:"name"`
	Replicas     []replicaStatus `json:"replicas"`
	Reservations int             `json:"reservations"`
	Decisions    int             `json:"decisions"`
	FellOpen     int             `json:"fell_open"`
	Outcomes     map[string]int  `json:"outcomes"`
}

// pool returns the status of a pool.
func (a *agent) pool(name string) poolStatus {
	a.t.Helper()
	b, err := a.get("/status")
	if err != nil {
		a.t.Fatal(err)
	}
	var st struct{ Pools []poolStatus }
	if err := json.Unmarshal(b, &st); err != nil {
		a.t.Fatalf("/status: %v\n%s", err, b)
	}
	for _, p := range st.Pools {
		if p.Name == name {
			return p
		}
	}
	a.t.Fatalf("/status has no pool %s:\n%s", name, b)
	return poolStatus{}
}

// replica returns the status of a replica; its zero value if there is none.
func (p poolStatus) replica(name string) replicaStatus {
	for _, r := range p.Replicas {
		if r.Name == name {
			return r
		}
	}
	return replicaStatus{}
}

// ended is the number of outcomes.
func (p poolStatus) ended() (n int) {
	for _, c := range p.Outcomes {
		n += c
	}
	return n
}

// metrics returns /metrics, by series as they are written there.
func (a *agent) metrics() map[string]float64 {
	a.t.Helper()
	b, err := a.get("/metrics")
	if err != nil {
		a.t.Fatal(err)
	}
	m := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if at < 0 || lines.Text()[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(lines.Text()[at+1:], 64)
		if err != nil {
			a.t.Fatalf("/metrics: %q", lines.Text())
		}
		m[lines.Text()[:at]] = v
	}
	return m
}

// rss is the agent's resident memory in bytes.
func (a *agent) rss() int {
	a.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		a.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				a.t.Fatal(err)
			}
			return kb << 10
		}
	}
	a.t.Fatalf("no VmRSS:\n%s", b)
	return 0
}

// settled waits until the pool holds no reservation, and returns its status.
func (a *agent) settled(pool string) poolStatus {
	a.t.Helper()
	var p poolStatus
	eventually(a.t, 10*time.Second, "no reservation is left in pool "+pool, func() (bool, string) {
		p = a.pool(pool)
		return p.Reservations == 0, fmt.Sprintf("%+v", p)
	})
	return p
}

// stayZero checks that the metrics of the given names exist, with whatever labels,
// and are 0 but for those excused.
func (a *agent) stayZero(names []string, excused ...string) {
	a.t.Helper()
	series := a.metrics()
	for _, name := range names {
		found := false
		for s, v := range series {
			if s != name && !strings.HasPrefix(s, name+"{") {
				continue
			}
			found = true
			if v != 0 && !slices.Contains(excused, name) {
				a.t.Errorf("%s is %v, want 0", s, v)
			}
		}
		if !found {
			a.t.Errorf("no metric %s", name)
		}
	}
}
