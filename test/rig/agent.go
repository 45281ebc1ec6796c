package rig

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
	"syscall"
	"testing"
	"time"

	"pointsman/test/proxies"
)

// Agent is `pointsman serve` as a process that can be ended and started again.
type Agent struct {
	t      testing.TB
	Bin    string // its binary; Binary if it is empty
	Env    []string
	Config string
	Admin  string // host:port
	Log    proxies.Buffer
	Cmd    *exec.Cmd
	Ended  chan struct{}
}

// NewAgent returns an agent that is not started. It ends with the test, which
// fails when the log holds a panic or a data race.
func NewAgent(t testing.TB, config, admin string) *Agent {
	a := &Agent{t: t, Config: config, Admin: admin}
	t.Cleanup(func() {
		if a.Cmd != nil {
			a.Cmd.Process.Signal(syscall.SIGCONT)
			a.Cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-a.Ended:
			case <-time.After(10 * time.Second):
				t.Errorf("the agent does not end at SIGTERM")
				a.Kill()
			}
		}
		text := a.Log.String()
		if strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic") {
			t.Errorf("the agent panicked or raced")
		}
		if t.Failed() {
			t.Logf("the agent wrote:\n%s", text)
		}
	})
	return a
}

// Start starts the process and waits until it decides.
func (a *Agent) Start() {
	a.t.Helper()
	bin := a.Bin
	if bin == "" {
		bin = Binary
	}
	cmd := exec.Command(bin, "serve", "--config", a.Config)
	cmd.Env = append(os.Environ(), a.Env...)
	cmd.Stdout, cmd.Stderr = &a.Log, &a.Log
	proxies.EndWithTest(cmd, syscall.SIGKILL)
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	a.Cmd, a.Ended = cmd, ended
	Eventually(a.t, 10*time.Second, "the agent is ready", func() (bool, string) {
		_, err := a.Get("/readyz")
		return err == nil, fmt.Sprint(err)
	})
}

// Kill ends the process by SIGKILL.
func (a *Agent) Kill() {
	a.Cmd.Process.Kill()
	<-a.Ended
	a.Cmd = nil
}

// Signal sends sig to the process.
func (a *Agent) Signal(sig os.Signal) {
	a.t.Helper()
	if err := a.Cmd.Process.Signal(sig); err != nil {
		a.t.Fatal(err)
	}
}

// Ejected is the state of a replica that has failed, for a while.
const Ejected = "ejected"

var adminClient = http.Client{Timeout: 5 * time.Second}

// Get asks the admin address.
func (a *Agent) Get(path string) ([]byte, error) {
	resp, err := adminClient.Get("http://" + a.Admin + path)
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

// ReplicaStatus is the part of a replica in /status that tests look at, as
// an operator's script would read them.
type ReplicaStatus struct {
	Name     string `json:"name"`
	Address  string `json:"address"`
	State    string `json:"state"`
	Role     string `json:"role"`
	Weight   int    `json:"weight"`
	InFlight int    `json:"in_flight"`
	Waiting  int    `json:"waiting"`
	Tokens   int    `json:"tokens"`
	Chosen   int    `json:"chosen"`
	Served   int    `json:"served"`
	Failed   int    `json:"failed"`
}

// PoolStatus is the part of a pool.
type PoolStatus struct {
	Name         string                             `json:"name"`
	Replicas     []ReplicaStatus                    `json:"replicas"`
	Reservations int                                `json:"reservations"`
	Decisions    int                                `json:"decisions"`
	FellOpen     int                                `json:"fell_open"`
	Outcomes     map[string]int                     `json:"outcomes"`
	Legs         *struct{ Legs, Tokens, Local int } `json:"legs"`
}

// Pools returns the status of all pools.
func (a *Agent) Pools() []PoolStatus {
	a.t.Helper()
	b, err := a.Get("/status")
	if err != nil {
		a.t.Fatal(err)
	}
	var st struct{ Pools []PoolStatus }
	if err := json.Unmarshal(b, &st); err != nil {
		a.t.Fatalf("/status: %v\n%s", err, b)
	}
	return st.Pools
}

// Pool returns the status of a pool.
func (a *Agent) Pool(name string) PoolStatus {
	a.t.Helper()
	list := a.Pools()
	for _, p := range list {
		if p.Name == name {
			return p
		}
	}
	a.t.Fatalf("/status has no pool %s: %+v", name, list)
	return PoolStatus{}
}

// Replica returns the status of a replica; its zero value if there is none.
func (p PoolStatus) Replica(name string) ReplicaStatus {
	for _, r := range p.Replicas {
		if r.Name == name {
			return r
		}
	}
	return ReplicaStatus{}
}

// Ended is the number of outcomes.
func (p PoolStatus) Ended() (n int) {
	for _, c := range p.Outcomes {
		n += c
	}
	return n
}

// Metrics returns /metrics, by series as they are written there.
func (a *Agent) Metrics() map[string]float64 {
	a.t.Helper()
	b, err := a.Get("/metrics")
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

// RSS is the agent's resident memory in bytes.
func (a *Agent) RSS() int {
	a.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.Cmd.Process.Pid))
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

// Settled waits until the pool holds no reservation, and returns its status.
func (a *Agent) Settled(pool string) PoolStatus {
	a.t.Helper()
	var p PoolStatus
	Eventually(a.t, 10*time.Second, "no reservation is left in pool "+pool, func() (bool, string) {
		p = a.Pool(pool)
		return p.Reservations == 0, fmt.Sprintf("%+v", p)
	})
	return p
}

// stayZero checks that the metrics of the given names exist, with whatever labels,
// and are 0 but for those excused.
func (a *Agent) stayZero(names []string, excused ...string) {
	a.t.Helper()
	series := a.Metrics()
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
