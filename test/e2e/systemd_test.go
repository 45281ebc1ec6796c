package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// notifications is the socket to which a service reports its state to systemd.
type notifications struct {
	conn *net.UnixConn
	mu   sync.Mutex
	all  []string
}

func listenNotify(t *testing.T, path string) *notifications {
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	n := &notifications{conn: conn}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			k, err := conn.Read(buf)
			if err != nil {
				return
			}
			n.mu.Lock()
			n.all = append(n.all, strings.Split(string(buf[:k]), "\n")...)
			n.mu.Unlock()
		}
	}()
	return n
}

// count is how often the service has reported the state.
func (n *notifications) count(state string) (times int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.all {
		if s == state {
			times++
		}
	}
	return times
}

// TestSystemd starts the agent by socket activation. The agent takes the sockets
// by their names, and reports when it is ready, alive, reloading and stopping. The
// socket unit has two sockets of one name.
func TestSystemd(t *testing.T) {
	activate := proxies.Tool(t, "systemd-socket-activate")
	dir := t.TempDir()
	notify := listenNotify(t, filepath.Join(dir, "notify.sock"))
	first, second := filepath.Join(dir, "spoe.sock"), filepath.Join(dir, "chroot-spoe.sock")
	admin := rig.FreeAddress(t)
	config := filepath.Join(dir, "pointsman.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The agent does not listen on the address in the file: the sockets replace it.
	listen := fmt.Sprintf("listen: {spoe: \"unix://%s/unused.sock\", feed: off, admin: %q}\n", dir, admin)
	pool := "pools: {llama: {replicas: {r1: {address: \"127.0.0.1:1\"}}}}\n"
	write(listen + pool)

	a := rig.NewAgent(t, config, admin)
	args := []string{"-l", first, "-l", second, "--fdname=spoe:spoe", "-E", "NOTIFY_SOCKET=" + filepath.Join(dir, "notify.sock"), "-E", "WATCHDOG_USEC=600000"}
	if rig.CoverDir != "" {
		args = append(args, "-E", "GOCOVERDIR="+rig.CoverDir)
	}
	cmd := exec.Command(activate, append(args, rig.Binary, "serve", "--config", config)...)
	cmd.Stdout, cmd.Stderr = &a.Log, &a.Log
	proxies.EndWithTest(cmd, syscall.SIGKILL)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.Cmd, a.Ended = cmd, make(chan struct{})
	go func() { cmd.Wait(); close(a.Ended) }()

	reports := func(state string, times int) {
		t.Helper()
		rig.Eventually(t, 10*time.Second, "the service reports "+state, func() (bool, string) {
			n := notify.count(state)
			return n >= times, fmt.Sprintf("%d of %d times", n, times)
		})
	}
	// The first connection starts the agent; both sockets are served.
	for _, path := range []string{first, second} {
		rig.Eventually(t, 10*time.Second, path+" is served", func() (bool, string) {
			c, err := net.Dial("unix", path)
			if err != nil {
				return false, err.Error()
			}
			defer c.Close()
			// A frame that is too short to be one: the agent closes.
			c.SetDeadline(time.Now().Add(5 * time.Second))
			c.Write([]byte{0, 0, 0, 1, 0})
			_, err = c.Read(make([]byte, 64))
			return err == nil || strings.Contains(err.Error(), "EOF") || strings.Contains(err.Error(), "reset"), fmt.Sprint(err)
		})
	}
	reports("READY=1", 1)
	reports("WATCHDOG=1", 2)
	if _, err := os.Stat(filepath.Join(dir, "unused.sock")); err == nil {
		t.Error("the agent listens on the address in the file although it has sockets from systemd")
	}

	// A reload applies the file, or refuses it by name and keeps the old one.
	a.Signal(syscall.SIGHUP)
	reports("RELOADING=1", 1)
	reports("READY=1", 2)
	for _, bad := range []struct{ text, say string }{
		{listen + "pools: {llama: {policy: p2, replicas: {r1: {address: \"127.0.0.1:1\"}}}}\n", "pools[llama].policy"},
		{strings.Replace(listen, "feed: off", "feed: \"127.0.0.1:1\"", 1) + pool, "listen.feed"},
	} {
		write(bad.text)
		a.Signal(syscall.SIGHUP)
		rig.Eventually(t, 10*time.Second, "the reload is refused", func() (bool, string) {
			text := a.Log.String()
			return strings.Contains(text, "reload refused") && strings.Contains(text, bad.say), text
		})
	}
	if p := a.Pool("llama"); len(p.Replicas) != 1 {
		t.Errorf("after refused reloads the pool is %+v", p)
	}
	write(listen + "pools: {llama: {replicas: {r1: {address: \"127.0.0.1:1\"}, r2: {address: \"127.0.0.1:2\"}}}}\n")
	a.Signal(syscall.SIGHUP)
	rig.Eventually(t, 10*time.Second, "the new replica is known", func() (bool, string) {
		p := a.Pool("llama")
		return len(p.Replicas) == 2, fmt.Sprint(len(p.Replicas))
	})

	a.Signal(syscall.SIGTERM)
	reports("STOPPING=1", 1)
	<-a.Ended
	a.Cmd = nil
	// systemd owns the sockets: a stopped agent leaves them to it.
	if _, err := os.Stat(first); err != nil {
		t.Errorf("the agent removed the socket of systemd: %v", err)
	}
}
