package decider

import "pointsman/decider/kvcache"

// blockDemand is what is known of the block of a prompt at one depth.
type blockDemand struct {
	depth     int32
	rate, age float64 // as BlockRequests returns them
	holders   float64 // candidates that have the block; -1 = not counted
	load      float64 // the requests in flight on one of them, in the mean
}

// BlockRequests counts requests for the first of the prompt's blocks that replica i lacks,
// decaying to 1/e in a minute, and returns for how many seconds they have come. Both are 0
// where no replica holds that block.
func (v *View) BlockRequests(i int) (rate, age float64) {
	if d := demandOf(v, i); d != nil {
		return d.rate, d.age
	}
	return 0, 0
}

// LastBlockRequests is the count of BlockRequests for the last of the prompt's blocks that any
// replica holds. Below a common beginning a conversation has its last blocks for itself.
func (v *View) LastBlockRequests() float64 {
	if v.lastRate < 0 {
		v.lastRate = 0
		if v.best > 0 {
			v.lastRate = v.pool.caches.model.RequestRate(v.blocks[v.best-1], kvcache.Milliseconds(v.Now))
		}
	}
	return v.lastRate
}

// CopyShare is the share of the requests for that block that replica i would take over if it
// had the block too, until the replicas that have it have no more requests in flight than
// replica i. This request counts as one of theirs. It is 0 where replica i has more as it
// is, and 1 where no candidate has the block.
func (v *View) CopyShare(i int) float64 {
	d := demandOf(v, i)
	if d == nil {
		return 0
	}
	if d.holders < 0 {
		d.countHolders(v)
	}
	if d.holders == 0 {
		return 1
	}
	return max(0, 1-float64(v.Replicas[i].inFlight)/(d.load+1)) / (d.holders + 1)
}

// demandOf is the demand for the first block that replica i lacks, nil if no replica holds it.
func demandOf(v *View, i int) *blockDemand {
	if v.best == 0 {
		return nil
	}
	depth := v.depth[v.Replicas[i].slot]
	if depth >= v.best {
		return nil
	}
	// Most replicas lack one of a few blocks: each is looked up once for all.
	for k := range min(v.lookedUp, len(v.demands)) {
		if d := &v.demands[k]; d.depth == depth {
			return d
		}
	}
	d := &v.demands[v.lookedUp%len(v.demands)]
	v.lookedUp++
	*d = blockDemand{depth: depth, holders: -1}
	d.rate, d.age = v.pool.caches.model.Requests(v.blocks[depth], kvcache.Milliseconds(v.Now))
	d.age /= 1000
	return d
}

// countHolders counts the candidates that have the block, and their requests.
func (d *blockDemand) countHolders(v *View) {
	holders, requests := 0, 0
	for _, i := range v.Candidates {
		if r := v.Replicas[i]; v.depth[r.slot] > d.depth {
			holders++
			requests += r.inFlight
		}
	}
	d.holders, d.load = float64(holders), float64(requests)/float64(max(holders, 1))
}
