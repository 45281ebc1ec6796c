package config

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// maxUnixPath is the longest path of a unix socket, the kernel's sun_path less
// its closing zero.
const maxUnixPath = 107

var (
	errAddress  = errors.New("want unix:///path, tcp://host:port or host:port")
	errUnixPath = errors.New("want an absolute path of at most 107 bytes without spaces or quotes, such as unix:///run/pointsman/spoe.sock")
	errHostPort = errors.New("want host:port, such as 10.0.0.1:8000 or [::1]:8000")
	errPort     = errors.New("want a port from 1 to 65535")
)

// ParseAddress splits unix:///path, tcp://host:port or host:port into the
// network and address that net.Listen and net.Dial take. The host may be empty.
func ParseAddress(s string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(s, "unix://"); ok {
		if !strings.HasPrefix(path, "/") || len(path) > maxUnixPath || strings.ContainsFunc(path, breaksWord) {
			return "", "", errUnixPath
		}
		return "unix", path, nil
	}
	s = strings.TrimPrefix(s, "tcp://")
	if _, err := parseHostPort(s); err != nil {
		if strings.Contains(s, "/") {
			err = errAddress
		}
		return "", "", err
	}
	return "tcp", s, nil
}

// parseHostPort returns the host of host:port, which may be empty, a name, or
// an address without its brackets.
func parseHostPort(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.ContainsFunc(host, notHost) {
		return "", errHostPort
	}
	if _, err := netip.ParseAddr(host); err != nil && strings.Contains(host, ":") {
		return "", errHostPort
	}
	if port == "" || strings.Trim(port, "0123456789") != "" {
		return "", errHostPort
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port {
		return "", errPort
	}
	return host, nil
}

// breaksWord finds bytes that would end a word in HAProxy's configuration, where
// paths and hosts are rendered.
func breaksWord(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("\"'\\$#%{}", r) }

func notHost(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_:", r))
}

// loopback reports whether only this machine can reach a listener there.
func loopback(network, address string) bool {
	if network == "unix" {
		return true
	}
	host, _ := parseHostPort(address)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
