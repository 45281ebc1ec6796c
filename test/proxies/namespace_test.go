package proxies

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// onFirst are calls for the first thread of this process.
var onFirst = make(chan func())

func init() { runtime.LockOSThread() } // TestMain stays on the first thread

func TestMain(m *testing.M) {
	go func() { os.Exit(m.Run()) }()
	for f := range onFirst {
		f()
	}
}

// TestNamespaceIsLeft has threads enter a namespace and come back. What /proc shows as the
// network of a process is that of its first thread, which may be one of them.
func TestNamespaceIsLeft(t *testing.T) {
	n := NewNamespace(t)
	network := func() string {
		link, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			t.Error(err)
		}
		return link
	}
	visit := func() {
		home, there := network(), ""
		n.Do(func() { there = network() })
		if there == home || network() != home {
			t.Errorf("thread %d of %d: home %s, there %s, then %s", unix.Gettid(), os.Getpid(), home, there, network())
		}
	}
	visit()
	done := make(chan struct{})
	onFirst <- func() {
		defer close(done)
		visit()
	}
	<-done
}
