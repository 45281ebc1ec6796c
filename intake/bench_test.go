package intake

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/decider/policy"
)

// bodies makes n chat requests of about size bytes: conversations that begin
// with the same system prompt, an eighth of their length.
func bodies(n, size int) [][]byte {
	chance := rand.New(rand.NewPCG(uint64(n), uint64(size)))
	words := func(n int) string {
		var s strings.Builder
		for s.Len() < n {
			fmt.Fprintf(&s, "%x ", chance.Uint32()>>8)
		}
		return s.String()[:n]
	}
	system := words(size / 8)
	out := make([][]byte, n)
	for k := range out {
		var s strings.Builder
		fmt.Fprintf(&s, `{"model":"m","stream":true,"max_tokens":500,"messages":[{"role":"system","content":"%s"}`, system)
		for turn := 0; s.Len() < size-200; turn++ {
			role := []string{"user", "assistant"}[turn%2]
			fmt.Fprintf(&s, `,{"role":"%s","content":"%s\n"}`, role, words(min(2000, size-100-s.Len())))
		}
		s.WriteString(`]}`)
		out[k] = []byte(s.String())
	}
	return out
}

// benchmarkPolicy measures whole requests, from the body to the end, and reports
// the part that the proxy waits for: scan, hash and decision. Under
// RunParallel that part includes waiting for the pool's lock and, with more
// callers than processors, for a processor; p50 is what one caller sees then.
func benchmarkPolicy(b *testing.B, policy decider.Policy, replicaCount, size, callers int) {
	start := time.Now()
	requests := New(decider.New(func() time.Duration { return time.Since(start) }, seeds()))
	requests.Apply(Config{Pools: []decider.PoolConfig{{Name: "llama", Models: []string{"m"}, Policy: policy, PolicyName: "p", Replicas: replicas(replicaCount)}}})
	set := bodies(256, size)
	names := map[string][]byte{}
	for _, r := range replicas(replicaCount) {
		names[r.Name] = []byte(r.Name)
	}
	path := []byte("/v1/chat/completions")
	var serial atomic.Uint64
	var mu sync.Mutex
	var all []time.Duration
	caller := func(next func() bool) {
		var r Request
		var rid [32]byte
		live := make([]decider.ID, 0, 32) // what this caller has in flight
		servers := make([]string, 0, 32)
		took := make([]time.Duration, 0, 1<<16)
		for next() {
			n := serial.Add(1)
			in := Input{ID: hexID(&rid, n), Path: path, Body: set[n*0x9e3779b97f4a7c15>>32%uint64(len(set))]}
			in.BodySize = len(in.Body)
			at := time.Now()
			if requests.Handle(&r, in, nil) || r.Decision.Status != 0 {
				b.Error("refused: ", r.Decision.Reason)
				return
			}
			server := r.Decision.Server
			if len(took) < cap(took) {
				took = append(took, time.Since(at))
			}
			r.Pool.FirstToken(r.ID, names[server])
			if len(live) == cap(live) {
				r.Pool.Finished(decider.Outcome{ID: live[0], Server: names[servers[0]]})
				live, servers = append(live[:0], live[1:]...), append(servers[:0], servers[1:]...)
			}
			live, servers = append(live, r.ID), append(servers, server)
		}
		mu.Lock()
		all = append(all, took...)
		mu.Unlock()
	}
	warm := 5000 + 100*replicaCount // fills the caches, so that they evict
	caller(func() bool { warm--; return warm >= 0 })
	all = all[:0]
	b.ReportAllocs()
	b.ResetTimer()
	if callers == 1 {
		caller(b.Loop)
	} else {
		b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
		b.RunParallel(func(pb *testing.PB) { caller(pb.Next) })
	}
	b.StopTimer()
	slices.Sort(all)
	if n := len(all); n > 0 {
		b.ReportMetric(float64(all[n/2].Nanoseconds())/1e3, "p50-µs")
		b.ReportMetric(float64(all[n*99/100].Nanoseconds())/1e3, "p99-µs")
	}
}

// hexID writes n as a proxy writes an id.
func hexID(dst *[32]byte, n uint64) []byte {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[8:], n*0x9e3779b97f4a7c15)
	for i, c := range raw {
		dst[2*i], dst[2*i+1] = "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15]
	}
	return dst[:]
}

func BenchmarkLeastWork(b *testing.B) {
	for _, size := range []int{2 << 10, 16 << 10, 128 << 10} {
		for _, n := range []int{8, 64, 512} {
			b.Run(fmt.Sprintf("body=%dKiB/replicas=%d", size>>10, n), func(b *testing.B) {
				benchmarkPolicy(b, policy.LeastWork{}, n, size, 1)
			})
		}
	}
	for _, callers := range []int{2, 8, 64} {
		b.Run(fmt.Sprintf("body=16KiB/replicas=64/callers=%d", callers), func(b *testing.B) {
			benchmarkPolicy(b, policy.LeastWork{}, 64, 16<<10, callers)
		})
	}
}
