package kvevents

import (
	"bytes"

	"pointsman/decider/kvcache"
)

// tier returns where the blocks of e are, from the names used by vLLM, SGLang, LMCache and
// Dynamo. It returns false for an unknown name: such blocks do not count.
func (e *event) tier() (kvcache.Tier, bool) {
	m := e.medium
	if len(m) > 32 {
		return 0, false
	}
	var buf [32]byte
	copy(buf[:], m)
	for i, c := range buf[:len(m)] {
		if c >= 'a' && c <= 'z' {
			buf[i] = c - 'a' + 'A'
		}
	}
	switch up := buf[:len(m)]; string(up) {
	case "", "GPU", "DEVICE", "HBM":
		return kvcache.GPU, true
	case "CPU", "CPU_PINNED", "CPU_TIER1", "HOST", "DRAM", "LOCALCPUBACKEND":
		if e.remote {
			return kvcache.Disk, true
		}
		return kvcache.CPU, true
	case "CPU_TIER2", "DISK", "NVME", "SSD", "STORAGE", "FILE", "LOCALDISKBACKEND", "EXTERNAL", "NETWORK", "REMOTE", "SHARED", "REMOTEBACKEND":
		return kvcache.Disk, true
	default:
		if bytes.HasPrefix(up, gpuPrefix) {
			return kvcache.GPU, true // with its number
		}
	}
	return 0, false
}

var gpuPrefix = []byte("GPU")

// tiers is a set of tiers.
type tiers uint8

// bit is the set of t alone.
func bit(t kvcache.Tier) tiers { return 1 << t }

// each calls f with each tier of the set.
func (s tiers) each(f func(kvcache.Tier)) {
	for t := kvcache.GPU; t <= kvcache.Disk; t++ {
		if s&bit(t) != 0 {
			f(t)
		}
	}
}

// slow is the set of the tiers below the GPU.
const slow = tiers(1<<kvcache.CPU | 1<<kvcache.Disk)

// split divides blocks that are larger than those the pool compares, such as LMCache's,
// into blocks of blockTokens. It returns how many it made of each; 1 = it did nothing.
func (e *event) split(blockTokens int) int {
	m := e.size / max(blockTokens, 1)
	if m < 2 || e.size%blockTokens != 0 || len(e.tokens) < len(e.hashes)*e.size || len(e.extra) > 0 {
		return 1
	}
	e.size = blockTokens
	e.splitHashes(m)
	return m
}

// splitHashes replaces each hash by those of the m blocks that it stands for. The last one
// keeps the hash, which is the parent of the next block.
func (e *event) splitHashes(m int) {
	n := len(e.hashes)
	if m < 2 || n*m > maxEventBlocks {
		return
	}
	e.hashes = append(e.hashes, make([]uint64, n*(m-1))...)
	for i := n - 1; i >= 0; i-- {
		h := e.hashes[i]
		for j := m - 2; j >= 0; j-- {
			x := (h ^ uint64(j+1)*0x9e3779b97f4a7c15) * 0xff51afd7ed558ccd
			e.hashes[i*m+j] = x ^ x>>32
		}
		e.hashes[i*m+m-1] = h
	}
}

// Bounds of the blocks that a rank has on slower tiers. If its engine has reported no
// removals there, it keeps fewer: some stores never report what they drop.
var (
	maxSlow    = 1 << 20 // variables for tests
	maxUnknown = 1 << 16
)

// boundSlow forgets blocks on slower tiers if there are too many, down to seven eighths of
// the bound: first those that were not stored since the last time and are not on the GPU,
// in no further order.
func (r *rankIndex) boundSlow() {
	limit := maxUnknown
	if r.removesSlow {
		limit = maxSlow
	}
	t := &r.table
	if t.slowBlocks <= limit {
		return
	}
	for round := range 2 {
		for i := range t.slots {
			s := &t.slots[i]
			if t.slowBlocks <= limit/8*7 {
				return
			}
			if s.state == 0 || s.held[live]&slow == 0 {
				continue
			}
			if round == 0 && (s.state&slotStored != 0 || s.held[live]&bit(kvcache.GPU) != 0) {
				s.state &^= slotStored
				continue
			}
			for tier := kvcache.CPU; tier <= kvcache.Disk; tier++ {
				t.set(s, confirmed, tier, false)
				if t.set(s, live, tier, false) {
					r.recordRemoved(s.key, tier)
				}
			}
		}
	}
}
