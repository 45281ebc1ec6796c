package haproxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"pointsman/decider"
	"pointsman/templates"
)

// Member is a server that an HAProxy backend should have.
type Member struct {
	Name    string // an address without brackets; other servers are never changed
	Address string // ip:port
	Weight  int
}

// maxCommands bounds the commands after one poll.
const maxCommands = 64

// reconcile adds and deletes servers of a backend to match what was discovered.
// A server that is still in use is drained first and deleted after a later poll.
func (r *Runtime) reconcile(ctx context.Context, pool string, found stat) {
	has, there := found.states[pool]
	if r.Members == nil || !there {
		return
	}
	want, ok := r.Members(pool)
	if !ok {
		return
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	list := commands(pool, has, want, found.version)
	r.refused.retain(pool, list)
	for _, server := range r.silent.over(pool, found.silent, time.Now()) {
		r.Log.Warn("a replica's host has vanished; its requests end", "server", server)
		list = append(list, command{server, "shutdown sessions server " + server, false})
	}
	sent := 0
	for _, c := range list {
		if sent == maxCommands {
			return
		}
		if r.refused.pauses(c.server, time.Now()) {
			continue
		}
		sent++
		answer, err := r.command(ctx, c.text)
		if err != nil {
			r.Log.Warn("runtime API", "pool", pool, "error", err)
			return
		}
		r.Log.Debug("runtime API", "command", c.text, "answer", answer)
		if c.last && r.refused.answered(c.server, answer, time.Now()) {
			r.Log.Warn("HAProxy refuses to change a server", "command", c.text, "answer", answer, "retry", retryRefused.String())
		}
	}
}

// command is a command that changes a server.
type command struct {
	server string // BACKEND/NAME
	text   string
	last   bool // its answer shows whether the change was made
}

// commands returns the commands that turn has into want.
func commands(pool string, has []decider.ReplicaState, want []Member, v templates.Version) (list []command) {
	there := map[string]decider.ReplicaState{}
	for _, s := range has {
		there[s.Name] = s
	}
	for _, m := range want {
		if _, ok := there[m.Name]; !ok {
			name := pool + "/" + m.Name
			list = append(list,
				command{name, fmt.Sprintf("add server %s %s weight %d %s", name, m.Address, max(m.Weight, 1), v.AddServer()), true},
				command{name, "enable health " + name, false}, command{name, "enable server " + name, false})
		}
		delete(there, m.Name)
	}
	for _, s := range has {
		if _, left := there[s.Name]; left && isAddress(s.Name) {
			name := pool + "/" + s.Name
			list = append(list, command{name, "set server " + name + " state maint", false}, command{name, "del server " + name, true})
		}
	}
	return list
}

// isAddress reports whether a server's name is an address, as we name servers.
func isAddress(name string) bool {
	at := strings.LastIndexByte(name, ':')
	if at < 0 {
		return false
	}
	_, err := netip.ParseAddr(name[:at])
	return err == nil
}

// command sends one command and returns the beginning of the answer.
func (r *Runtime) command(ctx context.Context, text string) (string, error) {
	d := net.Dialer{Timeout: queryTimeout}
	c, err := d.DialContext(ctx, r.Network, r.Address)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	defer c.Close()
	if _, err := io.WriteString(c, text+"\n"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(io.LimitReader(c, 4096))
	return strings.TrimSpace(string(answer)), err
}
