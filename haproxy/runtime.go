package haproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"pointsman/decider"
	"pointsman/templates"
)

// Runtime follows the servers of HAProxy's backends through the runtime API: which
// exist, and their health, draining and weights.
type Runtime struct {
	Network, Address string // "unix" and a path, or "tcp" and host:port
	Poll             time.Duration
	Decider          *decider.Decider
	Log              *slog.Logger

	// Members, unless nil, returns the servers that the backend of a pool should
	// have, for pools whose replicas are discovered elsewhere. It reports false for
	// any other pool.
	Members func(pool string) ([]Member, bool)

	// Version, unless nil, is called with HAProxy's version when it first answers, and when
	// it answers again.
	Version func(string)

	changing sync.Mutex // held while servers are added and deleted
	refused  refusals
	silent   silences // of servers whose hosts do not answer; under changing
	problem  atomic.Pointer[string]
	answered atomic.Pointer[time.Time] // when it last answered
}

// Age is how long ago the runtime API last answered, in seconds; -1 before the first answer.
func (r *Runtime) Age() float64 {
	at := r.answered.Load()
	if at == nil {
		return -1
	}
	return time.Since(*at).Seconds()
}

// Problem is why the runtime API does not answer, with a remedy; "" while it does.
func (r *Runtime) Problem() string {
	if p := r.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// queryTimeout bounds one query of the runtime API.
const queryTimeout = 2 * time.Second

// maxStat bounds the answer to one query, in bytes: about 50,000 servers.
const maxStat = 32 << 20

// Run polls the runtime API every Poll until ctx ends. While HAProxy does not
// answer, the replicas keep their last state: a proxy that restarts must not make
// its replicas disappear.
func (r *Runtime) Run(ctx context.Context) {
	failing, versioned := false, false
	for {
		stat, err := r.poll(ctx)
		switch {
		case err == nil && failing:
			failing = false
			r.problem.Store(nil)
			r.Log.Info("runtime API answers again", "address", r.Address)
		case err != nil && ctx.Err() == nil:
			remedy := unreached(r.Address, err)
			text := fmt.Sprintf("HAProxy's runtime API does not answer, so its checks, drains and weights are not known: %s: %s",
				strings.ReplaceAll(err.Error(), "\n", ": "), remedy)
			if r.problem.Store(&text); failing {
				break
			}
			failing = true
			r.Log.Warn("runtime API does not answer; replicas keep their last state", "address", r.Address, "error", err, "remedy", remedy)
		}
		if versioned = versioned && err == nil; err == nil && !versioned && r.Version != nil {
			versioned = true
			if v := r.version(ctx); v != "" {
				r.Version(v)
			}
		}
		if err == nil {
			for _, p := range r.Decider.Pools() {
				r.reconcile(ctx, p.Name(), stat)
				if s, ok := stat.states[p.Name()]; ok && p.Discovered(s) {
					r.Log.Info("replicas changed", "pool", p.Name(), "replicas", len(s))
				}
			}
		}
		pause := r.Poll
		if err != nil {
			pause = max(pause, time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// Reconcile matches the servers of a pool to Members now instead of at the next
// poll, so that HAProxy knows them before a request is sent to one. It takes a few
// seconds at most, and does nothing if HAProxy does not answer.
func (r *Runtime) Reconcile(ctx context.Context, pool string) {
	if stat, err := r.poll(ctx); err == nil {
		r.reconcile(ctx, pool, stat)
	}
}

// poll asks for the servers of all backends.
func (r *Runtime) poll(ctx context.Context) (stat, error) {
	d := net.Dialer{Timeout: queryTimeout}
	c, err := d.DialContext(ctx, r.Network, r.Address)
	if err != nil {
		return stat{}, err
	}
	stat, err := query(ctx, c, func(pool string) bool { return r.Decider.Pool(pool) != nil })
	if err == nil {
		now := time.Now()
		r.answered.Store(&now)
	}
	return stat, err
}

// version asks HAProxy for its version; "" if it does not report it.
func (r *Runtime) version(ctx context.Context) string {
	d := net.Dialer{Timeout: queryTimeout}
	c, err := d.DialContext(ctx, r.Network, r.Address)
	if err != nil {
		return ""
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if c.SetDeadline(time.Now().Add(queryTimeout)) != nil {
		return ""
	}
	if _, err := io.WriteString(c, "show info\n"); err != nil {
		return ""
	}
	lines := bufio.NewScanner(io.LimitReader(c, maxStat))
	for lines.Scan() {
		if v, ok := strings.CutPrefix(lines.Text(), "Version: "); ok {
			v, _, _ = strings.Cut(v, "-") // of distributions
			return v[:min(len(v), 32)]
		}
	}
	return ""
}

// query asks for the servers of all backends over c, and closes it. It keeps only those
// that are wanted.
func query(ctx context.Context, c net.Conn, wanted func(pool string) bool) (stat, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	defer c.Close()
	// Who answers; -1: all proxies; 6: backends and servers; -1: all servers.
	if _, err := io.WriteString(c, "show info;show stat -1 6 -1\n"); err != nil {
		return stat{}, err
	}
	return parseStat(io.LimitReader(c, maxStat), wanted)
}

// stat is what HAProxy reports about its servers.
type stat struct {
	version templates.Version                 // HAProxy's, 0.0 if it does not report it
	states  map[string][]decider.ReplicaState // by backend
	silent  map[string]check                  // of servers with requests whose hosts may not answer, by BACKEND/NAME
}

// columns of "show stat" that are read, by their names in its first line. Those from
// optional on may be missing.
var columns = [...]string{"pxname", "svname", "status", "weight", "addr", "scur", "qcur", "check_status", "last_chk", "bout"}

const optional = 6

// maxServers bounds the servers of one backend.
const maxServers = 10_000

// parseStat parses the CSV of "show stat" into the servers of each backend that is
// wanted. Backends without servers are included.
func parseStat(in io.Reader, wanted func(pool string) bool) (stat, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 4096), 64<<10)
	lines.Split(scanRecord)
	var info processInfo
	header, ok := "", false
	for !ok {
		if !lines.Scan() {
			if info.other == "" {
				return stat{}, errors.Join(lines.Err(), errors.New("no answer to show stat"))
			}
			return stat{}, fmt.Errorf("show stat answers %.60q", info.other)
		}
		if header, ok = strings.CutPrefix(lines.Text(), "# "); !ok {
			info.read(lines.Text())
		}
	}
	var at [len(columns)]int
	names := appendFields(nil, header)
	for i, want := range columns {
		at[i] = -1
		for j, name := range names {
			if name == want {
				at[i] = j
			}
		}
		if at[i] < 0 && i < optional {
			return stat{}, fmt.Errorf("show stat has no column %s", want)
		}
	}
	last := slices.Max(at[:])
	states, silent := map[string][]decider.ReplicaState{}, map[string]check{}
	var fields []string
	whole := false
	for !whole && lines.Scan() {
		whole = len(lines.Bytes()) == 0 // an empty line ends the answer
		fields = appendFields(fields[:0], lines.Text())
		if len(fields) < len(names)-1 || len(fields) <= last {
			continue // that line, or one of another format
		}
		pool, server, status := fields[at[0]], fields[at[1]], fields[at[2]]
		if !wanted(pool) {
			continue
		}
		if server == "BACKEND" { // the backend itself, listed even without servers
			states[pool] = append(states[pool], []decider.ReplicaState{}...)
			continue
		}
		if len(states[pool]) >= maxServers {
			return stat{}, fmt.Errorf("backend %.60q has more than %d servers", pool, maxServers)
		}
		weight, _ := strconv.Atoi(fields[at[3]])
		running, err1 := strconv.Atoi(fields[at[5]])
		queued, err2 := 0, error(nil)
		if at[6] >= 0 {
			queued, err2 = strconv.Atoi(fields[at[6]])
		}
		if at[7] >= 0 && at[8] >= 0 && at[9] >= 0 && strings.HasPrefix(status, "DOWN") && running > 0 {
			if f, found := readCheck(fields[at[7]], fields[at[8]], fields[at[9]]); found {
				silent[pool+"/"+server] = f
			}
		}
		states[pool] = append(states[pool], decider.ReplicaState{
			Origin:   info.origin(),
			Name:     server,
			Address:  fields[at[4]],
			Up:       !strings.HasPrefix(status, "DOWN") && !strings.HasPrefix(status, "MAINT"),
			Checked:  strings.HasPrefix(status, "UP"),
			Draining: strings.HasPrefix(status, "DRAIN") || strings.HasPrefix(status, "NOLB") || weight <= 0,
			Idle:     fields[at[5]] == "0",
			Weight:   max(weight, 0),
			Requests: max(running, 0) + max(queued, 0),
			Queued:   max(queued, 0),
			Counted:  err1 == nil && err2 == nil,
		})
	}
	if err := lines.Err(); err != nil {
		return stat{}, err
	}
	if !whole {
		return stat{}, errors.New("the answer to show stat was cut off") // the servers that are missing exist
	}
	return stat{info.version(), states, silent}, nil
}

// processInfo is what "show info" reports about the process that answers.
type processInfo struct {
	host, pid string
	release   string
	other     string // the first line that is not one of "show info"
}

// read reads a line.
func (p *processInfo) read(line string) {
	key, value, ok := strings.Cut(line, ": ")
	switch {
	case ok && key == "Pid":
		p.pid = value
	case ok && key == "Version":
		p.release = value
	case ok && key == "node":
		p.host = value
	case !ok && !strings.HasSuffix(line, ":") && line != "" && p.other == "":
		p.other = line
	}
}

// origin is the number of the process, 0 if it does not identify itself.
func (p *processInfo) origin() uint64 {
	if p.host == "" || p.pid == "" {
		return 0
	}
	return origin([]byte(p.host + "/" + p.pid))
}

// version is the version of the process, 0.0 if it does not report it.
func (p *processInfo) version() templates.Version {
	v, _ := templates.ParseVersion(p.release)
	return v
}

// unreached explains what to do about a runtime API that cannot be reached.
func unreached(address string, err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "have `stats socket " + address + " mode 660 group haproxy level admin` in HAProxy's global section, and add this user to group haproxy"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return "is HAProxy running, and has its global section `stats socket " + address + " mode 660 group haproxy level admin`?"
	}
	return "see `pointsman check`"
}
