package e2e

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// TestDescriptorsRunOut opens connections to each address of the agent until it has
// no file descriptors left. It goes on, and so do requests; afterwards it decides
// again.
func TestDescriptorsRunOut(t *testing.T) {
	onEach(t, newest(t), func(t *testing.T, r release) {
		t.Parallel()
		s, _ := replicas(t, r, 2, "round_robin")
		s.start()
		client := newClient(4, true, false)
		defer client.CloseIdleConnections()
		s.serve(client, 4)
		addresses := [][2]string{{"tcp", s.agent.admin}}
		switch p := s.proxy.(type) {
		case *haproxy:
			addresses = append(addresses, [2]string{"tcp", p.feed}, [2]string{"unix", p.spoe})
		case *nginx:
			addresses = append(addresses, [2]string{"unix", p.socket}, [2]string{"tcp", p.feed})
		}
		for _, address := range addresses {
			limit(t, s.agent.cmd.Process.Pid, descriptors(t, s.agent.cmd.Process.Pid)+5)
			var idle []net.Conn
			for range 40 {
				c, err := net.DialTimeout(address[0], address[1], 5*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				idle = append(idle, c)
			}
			eventually(t, 5*time.Second, "none is left", func() (bool, string) {
				n := descriptors(t, s.agent.cmd.Process.Pid)
				return n >= int(limitOf(t, s.agent.cmd.Process.Pid)), fmt.Sprint(n)
			})
			for range 5 {
				if a := small(false).do(client, s.front); a.err != nil || a.status != 200 {
					t.Errorf("%v exhausted: %d %v", address, a.status, a.err)
				}
			}
			for _, c := range idle {
				c.Close()
			}
			limit(t, s.agent.cmd.Process.Pid, 4096)
		}
		select {
		case <-s.agent.ended:
			t.Fatal("the agent has ended")
		default:
		}
		before := s.agent.pool(pool).Decisions
		eventually(t, 10*time.Second, "it decides", func() (bool, string) {
			s.serve(client, 1)
			n := s.agent.pool(pool).Decisions
			return n >= before+3, fmt.Sprint(n)
		})
	})
}

// descriptors is how many the process has open.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// limit bounds the descriptors of a process.
func limit(t *testing.T, pid, n int) {
	t.Helper()
	l := limits(t, pid, nil)
	l.Cur = uint64(n)
	limits(t, pid, &l)
}

func limitOf(t *testing.T, pid int) uint64 { t.Helper(); return limits(t, pid, nil).Cur }

// limits returns RLIMIT_NOFILE of a process, and sets it unless set is nil.
func limits(t *testing.T, pid int, set *syscall.Rlimit) (l syscall.Rlimit) {
	t.Helper()
	_, _, err := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_NOFILE,
		uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(&l)), 0, 0)
	if err != 0 {
		t.Fatal(err)
	}
	return l
}
