// Package loopback chooses ports of 127.0.0.1 for servers that other processes open later,
// such as those of a demo or a test.
package loopback

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
)

// claims are the ports that this process has chosen. Each is held by an abstract unix
// socket named after it: the kernel gives a name once in a network namespace, as it does a
// port, and takes it back when the process ends.
var claims struct {
	sync.Mutex
	held map[int]net.Listener
}

// errNone means that no port is free.
var errNone = errors.New("no free ports on 127.0.0.1")

// Ports returns the first of n ports in sequence on which nobody listens, over TCP or UDP.
// It chooses no port twice, and no other process that uses this package chooses one of them
// while this one runs. The kernel gives none of them to outgoing connections, which could
// take a port before its server opens it.
func Ports(n int) (first int, err error) {
	text, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	lowest, end := outside(string(text))
	if n < 1 || end-lowest < n {
		return 0, errNone
	}
	for range 2000 {
		first = lowest + rand.IntN(end-lowest-n+1)
		port := first
		for port < first+n && take(port) {
			port++
		}
		if port == first+n {
			return first, nil
		}
		for port--; port >= first; port-- {
			release(port)
		}
	}
	return 0, errNone
}

// Addresses returns n addresses with ports as Ports chooses them.
func Addresses(n int) (list []string, err error) {
	for range n {
		port, err := Ports(1)
		if err != nil {
			return nil, err
		}
		list = append(list, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return list, nil
}

// outside returns the longer range of ports, from lowest to before end, that the kernel
// does not give to outgoing connections. text is the range that it gives, as in /proc.
func outside(text string) (lowest, end int) {
	const least, most, enough = 10_000, 1 << 16, 1000
	var from, to int
	if _, err := fmt.Sscan(text, &from, &to); err != nil || from > to {
		from, to = 32_768, 60_999 // Linux's own
	}
	lowest, end = least, max(from, least)
	if above := max(to+1, least); most-above > end-lowest {
		lowest, end = above, most
	}
	if end-lowest < enough {
		return least, most // the kernel gives nearly all: none is better than another
	}
	return lowest, end
}

// take claims a port if nobody listens on it.
func take(port int) bool {
	claim, err := net.Listen("unix", "@pointsman-port-"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	if !unused(port) {
		claim.Close()
		return false
	}
	claims.Lock()
	defer claims.Unlock()
	if claims.held == nil {
		claims.held = map[int]net.Listener{}
	}
	claims.held[port] = claim
	return true
}

// release ends the claim on a port.
func release(port int) {
	claims.Lock()
	defer claims.Unlock()
	claims.held[port].Close()
	delete(claims.held, port)
}
