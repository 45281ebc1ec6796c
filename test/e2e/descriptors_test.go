package e2e

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"pointsman/test/rig"
)

// TestDescriptorsRunOut opens connections to each address of the agent until it has
// no file descriptors left. It goes on, and so do requests; afterwards it decides
// again.
func TestDescriptorsRunOut(t *testing.T) {
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, _ := rig.Replicas(t, r, 2, "round_robin")
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		s.Serve(client, 4)
		addresses := [][2]string{{"tcp", s.Agent.Admin}}
		switch p := s.Proxy.(type) {
		case *rig.HAProxy:
			addresses = append(addresses, [2]string{"tcp", p.Feed}, [2]string{"unix", p.Spoe})
		case *rig.Nginx:
			addresses = append(addresses, [2]string{"unix", p.Socket}, [2]string{"tcp", p.Feed})
		}
		for _, address := range addresses {
			limit(t, s.Agent.Cmd.Process.Pid, descriptors(t, s.Agent.Cmd.Process.Pid)+5)
			var idle []net.Conn
			for range 40 {
				c, err := net.DialTimeout(address[0], address[1], 5*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				idle = append(idle, c)
			}
			rig.Eventually(t, 5*time.Second, "none is left", func() (bool, string) {
				n := descriptors(t, s.Agent.Cmd.Process.Pid)
				return n >= int(limitOf(t, s.Agent.Cmd.Process.Pid)), fmt.Sprint(n)
			})
			for range 5 {
				if a := rig.Small(false).Do(client, s.Front); a.Err != nil || a.Status != 200 {
					t.Errorf("%v exhausted: %d %v", address, a.Status, a.Err)
				}
			}
			for _, c := range idle {
				c.Close()
			}
			limit(t, s.Agent.Cmd.Process.Pid, 4096)
		}
		select {
		case <-s.Agent.Ended:
			t.Fatal("the agent has ended")
		default:
		}
		before := s.Agent.Pool(rig.Pool).Decisions
		rig.Eventually(t, 10*time.Second, "it decides", func() (bool, string) {
			s.Serve(client, 1)
			n := s.Agent.Pool(rig.Pool).Decisions
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
