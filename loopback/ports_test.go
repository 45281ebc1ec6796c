package loopback

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// child makes the test binary print addresses and wait for the end of its input.
const child = "POINTSMAN_LOOPBACK_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	list, err := Addresses(200)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(strings.Join(list, " "))
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// No port is chosen twice: not by this process, and not by another while it runs.
func TestPortsAreChosenOnce(t *testing.T) {
	seen := map[string]string{}
	note := func(who string, list []string) {
		t.Helper()
		if len(list) != 200 {
			t.Fatalf("%s: %d addresses: %v", who, len(list), list)
		}
		for _, a := range list {
			if seen[a] != "" {
				t.Errorf("%s has %s, which %s has", who, a, seen[a])
			}
			seen[a] = who
		}
	}
	for range 3 {
		list, err := Addresses(200)
		if err != nil {
			t.Fatal(err)
		}
		note("this process", list)
	}
	for i := range 3 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), child+"=1")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { in.Close(); _ = cmd.Wait() }()
		line := make([]byte, 1<<14)
		n, _ := out.Read(line)
		note(fmt.Sprint("process ", i), strings.Fields(string(line[:n])))
	}
}

// A port on which somebody listens is not chosen, whatever the protocol.
func TestPortsInUse(t *testing.T) {
	for _, network := range []string{"tcp", "udp"} {
		first, err := Ports(3)
		if err != nil {
			t.Fatal(err)
		}
		address := fmt.Sprintf("127.0.0.1:%d", first+1)
		if !unused(first + 1) {
			t.Errorf("%s: the port is in use", network)
		}
		if network == "tcp" {
			l, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
		} else {
			c, err := net.ListenPacket(network, address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		if unused(first + 1) {
			t.Errorf("%s: a port in use is called unused", network)
		}
	}
}

// The ports are none of those that the kernel gives to outgoing connections.
func TestRangeOutsideOfTheKernels(t *testing.T) {
	for text, want := range map[string][2]int{
		"32768\t60999\n": {10_000, 32_768},
		"15000\t40000\n": {40_001, 65_536},
		"1024\t65535\n":  {10_000, 65_536},
		"9000 20000":     {20_001, 65_536},
		"":               {10_000, 32_768},
		"a b":            {10_000, 32_768},
		"7 3":            {10_000, 32_768},
	} {
		lowest, end := outside(text)
		if [2]int{lowest, end} != want {
			t.Errorf("%q: %d to %d, want %v", text, lowest, end, want)
		}
	}
}

// A port can be opened at once, also while this process starts others, which hold what it has
// open for a moment: one that was chosen, and one that was freed.
func TestPortsCanBeOpened(t *testing.T) {
	var starting sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		starting.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	defer starting.Wait()
	defer close(done)
	open := func(address string) net.Listener {
		t.Helper()
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for range 300 {
		list, err := Addresses(1)
		if err != nil {
			t.Fatal(err)
		}
		Free(open(list[0]), list[0])
		open(list[0]).Close()
	}
}
