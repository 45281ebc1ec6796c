package stand

import (
	"encoding/json"
	"slices"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	line := "4711 (a ) name) S 17 4711 4711 0 -1 4194304 100 0 0 0 12 3 4 1 20 0 1 0 100 1 1\n"
	pid, parent, taken, err := parseStat(line)
	if err != nil || pid != 4711 || parent != 17 || taken != 200*time.Millisecond {
		t.Error(pid, parent, taken, err)
	}
	for _, broken := range []string{"", "1 (x", "1 (x) S 2", "x (x) S 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8"} {
		if _, _, _, err := parseStat(broken); err == nil {
			t.Errorf("%q was read", broken)
		}
	}
}

// The time of a process's children is part of its own.
func TestCPUCountsDescendants(t *testing.T) {
	var p Processes
	defer p.Stop()
	q, err := p.Start("sh", "-c", `sh -c 'while :; do :; done' & wait`)
	if err != nil {
		t.Fatal(err)
	}
	for range 600 {
		taken, err := CPU(q)
		if err != nil {
			t.Fatal(err)
		}
		if taken >= 50*time.Millisecond {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("no processor time was counted in 30 s")
}

func TestCleanEnvironment(t *testing.T) {
	got := cleanEnvironment([]string{"PATH=/bin", "PYTHONDONTWRITEBYTECODE=1", "RUST_BACKTRACE=1", "https_proxy=x", "HOME=/h"})
	if want := []string{"PATH=/bin", "HOME=/h"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestBody(t *testing.T) {
	for _, size := range []int{100, 1 << 10, 16<<10 + 1, 128 << 10} {
		for _, stream := range []bool{false, true} {
			b := Body(size, stream)
			var read struct{ Stream bool }
			if err := json.Unmarshal(b, &read); err != nil || read.Stream != stream {
				t.Errorf("%d bytes, stream %v: %v, %v", size, stream, err, read)
			}
			if size > 1000 && (len(b) < size-100 || len(b) > size) {
				t.Errorf("%d bytes instead of %d", len(b), size)
			}
		}
	}
}

func TestMedian(t *testing.T) {
	if Median(nil) != 0 || Median([]float64{3, 1, 2}) != 2 || Spread([]float64{3, 1}) != 1 || Spread(nil) != 0 {
		t.Error("wrong median or spread")
	}
}

// Closed counts answers, failures and chunks, of replicas that serve.
func TestReplicas(t *testing.T) {
	listen, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = ServeReplicas(2, listen, 0) }()
	url := "http://" + Loopback(1, listen)
	client := NewClient(url, 2)
	for range 200 {
		if _, err = Post(client, url, Body(100, false), 5*time.Second); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	if l := Closed(client, url, Body(1000, false), 2, 20, time.Minute); len(l.Latencies) != 20 || l.Failed != 0 || l.Chunks != 0 {
		t.Errorf("%d answered, %d failed, %d chunks: %v", len(l.Latencies), l.Failed, l.Chunks, l.Err)
	}
	if l := Closed(client, url, Body(1000, true), 1, 1, time.Minute); l.Chunks != Chunks+1 {
		t.Errorf("%d chunks (%v), want %d and the end", l.Chunks, l.Err, Chunks)
	}
	if l := Closed(NewClient("http://127.0.0.1:1", 1), "http://127.0.0.1:1", nil, 1, 3, time.Minute); l.Failed != 3 || l.Err == nil {
		t.Errorf("%d of 3 failed: %v", l.Failed, l.Err)
	}
}
