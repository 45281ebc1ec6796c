// Package discover finds the replicas of pools that have no list of them: the
// addresses of a DNS name, or the targets of a file in Prometheus' file_sd
// format, polled at an interval.
package discover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Replica is a replica that was found.
type Replica struct {
	Address    string // ip:port
	Zone, Node string // "" = not known
	Weight     int    // 0 = not known
	Role       string // one of the roles; "" = not known
}

// The roles that replicas may have.
const (
	RolePrefill = "prefill"
	RoleDecode  = "decode"
	RoleBoth    = "both"
)

// Source is where the replicas come from: DNS or File.
type Source struct {
	DNS  string // name:port
	File string // path

	// Prefill is the name:port of those with the role prefill; those of DNS then have the
	// role decode. "" = there are none.
	Prefill string
	// Roles says that targets of the file may have the role prefill.
	Roles bool
}

// Watcher polls a source and reports the replicas that it finds.
type Watcher struct {
	Source
	Poll time.Duration
	Log  *slog.Logger
	// Found is called with the replicas, sorted by address, whenever they differ
	// from those of the last call. It must not change them.
	Found func([]Replica)

	// Lookup replaces the system's resolver in tests; nil = the resolver.
	Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// pollTimeout bounds one poll.
const pollTimeout = 5 * time.Second

// maxReplicas bounds what one source may hold.
const maxReplicas = 4096

// Run polls until ctx ends. While polls fail, the last result holds: a resolver
// that restarts, or a file that is half written, must not empty a pool.
func (w *Watcher) Run(ctx context.Context) {
	var last []Replica
	var logged string // the error that was logged last, "" = none
	for first := true; ; first = false {
		found, err := w.Replicas(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if logged != err.Error() {
				logged = err.Error()
				w.Log.Warn("replicas not found; the last ones stay", "source", w.name(), "error", err)
			}
		case first || !slices.Equal(found, last) || logged != "":
			logged = ""
			last = found
			w.Found(found)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(w.Poll):
		}
	}
}

// Replicas returns the replicas that the source holds now, sorted by address.
func (w *Watcher) Replicas(ctx context.Context) ([]Replica, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	targets := []Replica{{Address: w.DNS}}
	if w.Prefill != "" {
		targets = []Replica{{Address: w.DNS, Role: RoleDecode}, {Address: w.Prefill, Role: RolePrefill}}
	}
	if w.File != "" {
		var err error
		if targets, err = readFile(w.File); err != nil {
			return nil, err
		}
		if !w.Roles && slices.ContainsFunc(targets, func(r Replica) bool { return r.Role == RolePrefill }) {
			return nil, fmt.Errorf("%s: role %s, but the pool has no sidecar", w.File, RolePrefill)
		}
	}
	seen := map[string]bool{}
	found := []Replica{}
	for _, t := range targets {
		addresses, err := w.resolve(ctx, t.Address)
		if none, ok := errors.AsType[*net.DNSError](err); ok && none.IsNotFound && t.Address == w.Prefill {
			continue // the others compute prompts themselves
		}
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			if !seen[a] {
				seen[a] = true
				t.Address = a
				found = append(found, t)
			}
		}
	}
	if len(found) > maxReplicas {
		return nil, fmt.Errorf("%d replicas, want at most %d", len(found), maxReplicas)
	}
	slices.SortFunc(found, func(a, b Replica) int { return compare(a.Address, b.Address) })
	return found, nil
}

func (w *Watcher) name() string {
	if w.File != "" {
		return w.File
	}
	return w.DNS
}

// resolve turns host:port into the ip:port of each address of the host.
func (w *Watcher) resolve(ctx context.Context, target string) ([]string, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil || host == "" || port == "" {
		return nil, fmt.Errorf("target %.100q, want host:port", target)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return []string{net.JoinHostPort(ip.Unmap().String(), port)}, nil
	}
	lookup := w.Lookup
	if lookup == nil {
		lookup = net.DefaultResolver.LookupNetIP
	}
	ips, err := lookup(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, ip := range ips {
		out = append(out, net.JoinHostPort(ip.Unmap().String(), port))
	}
	return out, nil
}

// compare orders addresses by number, so that 10.0.0.10 follows 10.0.0.9.
func compare(a, b string) int {
	x, errX := netip.ParseAddrPort(a)
	y, errY := netip.ParseAddrPort(b)
	if errX != nil || errY != nil {
		return 0
	}
	return x.Compare(y)
}
