package sim

// decodeHeap holds the decoding jobs, the one with the earliest due step on
// top. Equal steps are ordered by admission, so runs repeat exactly.
type decodeHeap []*Job

func (h decodeHeap) less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return h[i].admitted < h[j].admitted
}

func (h decodeHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i, j
}

func (h *decodeHeap) push(j *Job) {
	j.slot = len(*h)
	*h = append(*h, j)
	h.up(j.slot)
}

// remove takes the job in slot i out.
func (h *decodeHeap) remove(i int) {
	last := len(*h) - 1
	if i != last {
		h.swap(i, last)
	}
	(*h)[last] = nil
	*h = (*h)[:last]
	if i != last {
		h.fix(i)
	}
}

// fix restores the order after the job in slot i changed its due step.
func (h decodeHeap) fix(i int) {
	h.up(i)
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h.less(child+1, child) {
			child++
		}
		if !h.less(child, i) {
			return
		}
		h.swap(i, child)
		i = child
	}
}

func (h decodeHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}
