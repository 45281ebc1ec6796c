package discover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "targets")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFile(t *testing.T) {
	path := write(t, `[
  {"targets": ["10.0.0.10:8000", "10.0.0.9:8000"], "labels": {"zone": "a", "weight": "3", "job": "vllm"}},
  {"targets": ["[::1]:8000", "10.0.0.9:8000", "pair:1"], "labels": {"node": "n1"}}
]`)
	w := Watcher{Source: Source{File: path}, Lookup: func(_ context.Context, _, host string) ([]netip.Addr, error) {
		if host != "pair" {
			return nil, errors.New("no such host")
		}
		return []netip.Addr{netip.MustParseAddr("::ffff:10.0.1.1"), netip.MustParseAddr("10.0.1.2")}, nil
	}}
	got, err := w.Replicas(t.Context())
	want := []Replica{
		{"10.0.0.9:8000", "a", "", 3, ""}, {"10.0.0.10:8000", "a", "", 3, ""}, // the first group wins
		{"10.0.1.1:1", "", "n1", 0, ""}, {"10.0.1.2:1", "", "n1", 0, ""}, {"[::1]:8000", "", "n1", 0, ""},
	}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	w.File = write(t, "- targets: ['10.0.0.1:1']\n  labels: {zone: b}\n- targets: []\n")
	if got, err := w.Replicas(t.Context()); err != nil || len(got) != 1 || got[0].Zone != "b" {
		t.Errorf("YAML: %v, %v", got, err)
	}
	w.File = write(t, "[]")
	if got, err := w.Replicas(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("empty: %v, %v", got, err)
	}
	for _, bad := range []string{"", "{", "[{targets: 10.0.0.1:1}]", "[{targets: [x]}]", "[{targets: ['h:1'], labels: {weight: many}}]", "[{targets: ['none:1']}]", "[{targets: ['h:1'], labels: {role: prefiller}}]", "[{targets: ['10.0.0.1:1'], labels: {role: prefill}}]"} {
		w.File = write(t, bad)
		if got, err := w.Replicas(t.Context()); err == nil {
			t.Errorf("%q: read as %v", bad, got)
		}
	}
}

// Replicas have roles by a label, or by which of two names they have.
func TestRoles(t *testing.T) {
	prefills := errors.New("no answer")
	w := Watcher{Source: Source{Roles: true, File: write(t, "[{targets: ['10.0.0.1:1'], labels: {role: prefill}}, {targets: ['10.0.0.2:1'], labels: {role: decode}}, {targets: ['10.0.0.3:1']}]")},
		Lookup: func(_ context.Context, _, host string) ([]netip.Addr, error) {
			if host == "prefill" {
				return []netip.Addr{netip.MustParseAddr("10.0.1.1")}, prefills
			}
			return []netip.Addr{netip.MustParseAddr("10.0.1.2")}, nil
		}}
	roles := func() (all string) {
		got, err := w.Replicas(t.Context())
		if err != nil {
			return "error"
		}
		for _, r := range got {
			all += r.Address + " " + r.Role + ", "
		}
		return all
	}
	if got := roles(); got != "10.0.0.1:1 prefill, 10.0.0.2:1 decode, 10.0.0.3:1 , " {
		t.Error(got)
	}
	w.Source = Source{DNS: "decode:8000", Prefill: "prefill:8000"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "10.0.1.1:8000 prefill, 10.0.1.2:8000 decode, "},
		{errors.New("no answer"), "error"}, // the last ones stay
		{&net.DNSError{Err: "no such host", IsNotFound: true}, "10.0.1.2:8000 decode, "},
	} {
		prefills = c.err
		if got := roles(); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}

// Changes of a name's addresses are reported; a failed lookup keeps the last ones.
func TestNameThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
		var answer atomic.Pointer[[]netip.Addr] // nil = none
		answer.Store(&[]netip.Addr{one})
		var found []string
		w := Watcher{
			Source: Source{DNS: "vllm.internal:8000"}, Poll: time.Second, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Found: func(r []Replica) { found = append(found, fmt.Sprint(r)) },
			Lookup: func(context.Context, string, string) ([]netip.Addr, error) {
				if a := answer.Load(); a != nil {
					return *a, nil
				}
				return nil, errors.New("no answer")
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		go w.Run(ctx)
		time.Sleep(3500 * time.Millisecond)
		answer.Store(&[]netip.Addr{two, one})
		time.Sleep(time.Second)
		answer.Store(nil)
		time.Sleep(5 * time.Second)
		answer.Store(&[]netip.Addr{two})
		time.Sleep(time.Second)
		cancel()
		synctest.Wait()
		want := []string{"[{10.0.0.1:8000   0 }]", "[{10.0.0.1:8000   0 } {10.0.0.2:8000   0 }]", "[{10.0.0.2:8000   0 }]"}
		if fmt.Sprint(found) != fmt.Sprint(want) {
			t.Errorf("found %q, want %q", found, want)
		}
	})
}

func FuzzFile(f *testing.F) {
	f.Add([]byte(`[{"targets":["10.0.0.1:8000"],"labels":{"zone":"a"}}]`))
	f.Add([]byte("- targets: [a:1]\n  labels: {weight: 3}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := parseFile(b)
		if err == nil && len(list) > maxReplicas {
			t.Errorf("%d replicas", len(list))
		}
	})
}
