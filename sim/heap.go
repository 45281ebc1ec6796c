package sim

import "container/heap"

// decodeHeap implements heap.Interface. It holds the decoding jobs, the one with
// the earliest due step on top. Jobs due at the same step are ordered by
// admission, so that runs repeat exactly.
type decodeHeap []*Job

func (h decodeHeap) Len() int { return len(h) }

func (h decodeHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	return a.due < b.due || a.due == b.due && a.admitted < b.admitted
}

func (h decodeHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i, j
}

func (h *decodeHeap) Push(x any) {
	j := x.(*Job)
	j.slot = len(*h)
	*h = append(*h, j)
}

func (h *decodeHeap) Pop() any {
	last := len(*h) - 1
	j := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return j
}

var _ heap.Interface = (*decodeHeap)(nil)
