package config

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBytesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Bytes(rapid.IntRange(0, 1<<50).Draw(t, "n") << rapid.SampledFrom([]int{0, 10}).Draw(t, "shift"))
		if got, err := parseBytes(want.String()); err != nil || got != want {
			t.Fatalf("%v: got %v, %v", want, got, err)
		}
	})
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"0": 0, "65536": 65536, "64KiB": 65536, "1MiB": 1 << 20, "2GiB": 2 << 30} {
		if got, err := parseBytes(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "64KB", "64k", "1.5MiB", " 1", "1 KiB", "1_000", "9223372036854775808", "9999999999999999GiB"} {
		if got, err := parseBytes(text); err == nil {
			t.Errorf("%q: got %v", text, got)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"0s": 0, "250ms": 250 * time.Millisecond, "1h": time.Hour, "1m30s": 90 * time.Second} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "+0", "5", "1d", "-1s", "ms", "1.5"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q: got %v", text, got)
		}
	}
}

func TestParseAddress(t *testing.T) {
	for text, want := range map[string][2]string{
		"unix:///run/pointsman/spoe.sock": {"unix", "/run/pointsman/spoe.sock"},
		"tcp://127.0.0.1:9901":            {"tcp", "127.0.0.1:9901"},
		"127.0.0.1:9909":                  {"tcp", "127.0.0.1:9909"},
		"[::1]:9909":                      {"tcp", "[::1]:9909"},
		":9909":                           {"tcp", ":9909"},
		"gpu_1.example:65535":             {"tcp", "gpu_1.example:65535"},
	} {
		if network, address, err := ParseAddress(text); err != nil || network != want[0] || address != want[1] {
			t.Errorf("%s: got %s %s %v", text, network, address, err)
		}
	}
	for _, text := range []string{
		"", "x", "unix://run/x", "unix:///a b", "unix:///" + string(make([]byte, 200)), "http://10.0.0.1:80", "10.0.0.1", "10.0.0.1:0",
		"10.0.0.1:65536", "10.0.0.1:http", "10.0.0.1:080", "::1:80", "[::1%lo]:80", "a b:80", "a\n:80", "udp://127.0.0.1:80", "[g::]:80",
	} {
		if network, address, err := ParseAddress(text); err == nil {
			t.Errorf("%q: got %s %s", text, network, address)
		}
	}
}

// TestAddressWithMore: an address with a scheme or a path is not blamed for its port.
func TestAddressWithMore(t *testing.T) {
	for text, want := range map[string]error{"unix:///run/x.sock": errHostPort, "10.0.0.1:8000/v1": errHostPort, "h:http": errHostPort, "h:": errHostPort, "h:0": errPort, "h:65536": errPort, "h:080": errPort} {
		if _, err := parseHostPort(text); err != want {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"power_of_two", "random", "session", "prefix_affinity", "prefix_cache", "kv_aware", "kv_cost", "least_work", "least_work_late", "least_tokens"}
	for slip, want := range map[string]string{"sesion": "session", "ranodm": "random", "power-of-two": "power_of_two", "": "", "x": "", "xession!!!": "",
		"prefix": "prefix_affinity or prefix_cache", "kv": "kv_aware or kv_cost", "least": "least_work, least_work_late or least_tokens", "leastwork": "least_work",
		"prefix_aware": "", "kv_": "kv_aware or kv_cost", "session_affinity": "session"} {
		if got := choices(nearest(slip, names)); got != want {
			t.Errorf("%s: got %q, want %q", slip, got, want)
		}
	}
}
