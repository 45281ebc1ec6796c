package check

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pointsman/advice"
	"pointsman/config"
	"pointsman/resolve"
)

// account is the user that the installed unit runs the agent as.
const account = "pointsman"

// checkRuntime queries HAProxy's runtime API. If HAProxy does not run yet, it only warns.
func (rep *report) checkRuntime(r *resolve.Config) {
	api := r.File.HAProxy.RuntimeAPI
	if api == "" {
		return
	}
	warn := func(remedy, format string, args ...any) {
		rep.found(advice.Finding{Level: advice.Warning, Rule: "runtime-api", Problem: "runtime API " + api + ": " + fmt.Sprintf(format, args...), Remedy: remedy})
	}
	network, address, err := config.ParseAddress(api)
	if err != nil {
		return // refused before
	}
	if network == "unix" {
		if problem := unreachable(address, account); problem != "" {
			warn("have `stats socket "+address+" mode 660 group haproxy level admin` in global, and add "+account+" to group haproxy (`usermod -aG haproxy "+account+"`)", "%s", problem)
		}
	}
	level, err := ask(network, address, "show cli level")
	switch {
	case errors.Is(err, fs.ErrPermission):
		warn("run check as root, or as a member of group haproxy", "%v", err)
		return
	case err != nil:
		warn("is HAProxy running, and has its global section `stats socket "+address+" mode 660 level admin`?", "does not answer: %v", err)
		return
	}
	if level = strings.TrimSpace(level); level != "admin" {
		warn("write `level admin` on its stats socket line", "HAProxy says %q: servers cannot be added or changed", level)
	}
	stat, err := ask(network, address, "show stat")
	if err != nil || !strings.HasPrefix(stat, "# pxname") {
		warn("", "HAProxy answers %.200q to show stat (%v)", stat, err)
		return
	}
	for _, p := range r.Pools {
		if !strings.Contains(stat, "\n"+p.Name+",") {
			warn("reload HAProxy with the attached configuration", "HAProxy runs without a backend %s", p.Name)
		}
	}
	fmt.Fprintf(rep, "runtime API %s: HAProxy answers, level %s\n", api, level)
}

// checkSocket reports an agent's socket that a proxy's user may not connect to. It ignores
// a missing socket and an unknown user.
func (rep *report) checkSocket(listen, proxy, user string) {
	path, ok := strings.CutPrefix(listen, "unix://")
	if !ok || user == "" {
		return
	}
	if problem := unreachable(path, user); problem != "" {
		rep.found(advice.Finding{Level: advice.Fault, Rule: "socket", Problem: "socket " + path + ": " + problem + ": " + proxy + " cannot ask",
			Remedy: "set listen.socket_group to a group of " + user + ", or with systemd SocketGroup= in the socket's unit"})
	}
}

// mostAnswer bounds an answer of the runtime API, in bytes.
const mostAnswer = 32 << 20

// ask sends one command to the runtime API.
func ask(network, address, command string) (string, error) {
	c, err := net.DialTimeout(network, address, 2*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, command+"\n"); err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(c, mostAnswer))
	return string(b), err
}

// unreachable returns why an account cannot use a socket, "" if it can or if that is
// unknown.
func unreachable(path, name string) string {
	u, err := user.Lookup(name)
	if err != nil {
		return "" // not installed
	}
	groups, err := u.GroupIds()
	if err != nil {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return denied(info.Mode(), st.Uid, st.Gid, name, u.Uid, groups)
}

// denied returns why an account cannot write to a file with this mode and owner, "" if it
// can.
func denied(mode fs.FileMode, uid, gid uint32, name, id string, groups []string) string {
	bit := fs.FileMode(0o002)
	switch {
	case id == "0":
		return ""
	case id == strconv.Itoa(int(uid)):
		bit = 0o200
	case slices.Contains(groups, strconv.Itoa(int(gid))):
		bit = 0o020
	}
	if mode.Perm()&bit != 0 {
		return ""
	}
	group := strconv.Itoa(int(gid))
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	return fmt.Sprintf("user %s may not write to it (mode %o, group %s)", name, mode.Perm(), group)
}
