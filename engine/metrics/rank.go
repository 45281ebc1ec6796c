package metrics

import "bytes"

// allRanks stands for no rank in particular.
const allRanks = -1

// maxRank bounds the numbers of ranks.
const maxRank = 1 << 16

// ReadRank is Read for one rank of an engine with data parallelism, by the number that
// requests name it by, which is 0 for the first one of a server. Samples without a rank
// count for each, except for the adapters in use.
func (r *Reading) ReadRank(page []byte, rank int) {
	t := samples{rank: rank, first: -1}
	r.readLines(page, &t)
	if rank != allRanks && t.first > 0 {
		// Of several groups of ranks, each with a server of its own (hybrid load
		// balancing), the later ones do not begin with 0 in metrics.
		t = samples{rank: rank + t.first, first: -1}
		r.readLines(page, &t)
	}
	r.fill(&t)
}

func (r *Reading) readLines(page []byte, t *samples) {
	*r = Reading{}
	for len(page) > 0 {
		line := page
		if end := bytes.IndexByte(page, '\n'); end >= 0 {
			line, page = page[:end], page[end+1:]
		} else {
			page = nil
		}
		r.readLine(line, t)
	}
}

// counts reports whether a sample of f with these labels is of the rank that is read, or
// of none.
func (t *samples) counts(labels []byte, f field) bool {
	if t.rank == allRanks {
		return true
	}
	own := labelValue(labels, "engine")
	isVLLM := own != nil
	if !isVLLM {
		if own = labelValue(labels, "dp_rank"); own == nil {
			return true
		}
	}
	number := rankNumber(own)
	// SGLang leaves out ranks that have had no request.
	if isVLLM && number >= 0 && (t.first < 0 || number < t.first) {
		t.first = number
	}
	if number != t.rank && f == fieldCacheInfo {
		t.otherRanks++
	}
	return number == t.rank
}

// rankNumber reads the number of a rank; -1 = it is none.
func rankNumber(text []byte) int {
	if len(text) == 0 {
		return -1
	}
	n := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			return -1
		}
		if n = 10*n + int(c-'0'); n > maxRank {
			return -1
		}
	}
	return n
}
