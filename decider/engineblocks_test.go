package decider

import (
	"testing"

	"pgregory.net/rapid"
)

func newLivePool(n int) (*Pool, *testClock) {
	policy, err := NewKVAware(TokenDefaults)
	if err != nil {
		panic(err)
	}
	return newTestPool(policy, n)
}

func tokenized(keys ...uint64) func(*Request) {
	return func(r *Request) { r.Tokenized(keys, 16*len(keys)+1) }
}

// A block is believed to be there exactly while the engine says so, or while a
// request is on its way that will bring it.
func TestLiveImagesHoldWhatTheEngineSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, _ := newLivePool(1)
		follower := p.Engine("r0").FollowBlocks()
		stored := map[uint64]bool{}
		type request struct {
			id      ID
			keys    []uint64
			started bool
		}
		var open []*request
		for range rapid.IntRange(1, 80).Draw(t, "events") {
			key := rapid.Uint64Range(1, 12).Draw(t, "key")
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0:
				p.Engine("r0").ChangeBlocks(follower, []BlockChange{{Key: key, Stored: true}})
				stored[key] = true
			case 1:
				p.Engine("r0").ChangeBlocks(follower, []BlockChange{{Key: key}})
				delete(stored, key)
			case 2:
				keys := make([]uint64, rapid.IntRange(0, 5).Draw(t, "blocks"))
				for i := range keys {
					keys[i] = key + uint64(i)
				}
				_, id := decide(p, tokenized(keys...), func(r *Request) { r.Stream = true })
				open = append(open, &request{id: id, keys: keys})
			case 3:
				if len(open) > 0 {
					r := open[rapid.IntRange(0, len(open)-1).Draw(t, "which")]
					p.FirstToken(r.id, []byte("r0"))
					r.started = true
				}
			case 4:
				if len(open) > 0 {
					i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
					end := rapid.SampledFrom([]End{Served, ClientGone}).Draw(t, "end")
					p.Finished(Outcome{ID: open[i].id, Server: []byte("r0"), End: end})
					open = append(open[:i], open[i+1:]...)
				}
			}
			m := p.replicas[0].cache
			for key := uint64(1); key < 20; key++ {
				want := stored[key]
				for _, r := range open {
					for _, k := range r.keys {
						want = want || k == key && !r.started
					}
				}
				if m.Has(key) != want {
					t.Fatalf("block %d: believed %v, want %v", key, m.Has(key), want)
				}
			}
		}
		for _, r := range open {
			p.Finished(Outcome{ID: r.id, Server: []byte("r0")})
		}
		if m := p.replicas[0].cache; m.Len() != 0 || m.InUse() != 0 {
			t.Fatalf("%d entries, %d in use with nothing in flight", m.Len(), m.InUse())
		}
	})
}

func TestFollowersTakeTurns(t *testing.T) {
	p, _ := newLivePool(2)
	old := p.Engine("r0").FollowBlocks()
	p.Engine("r0").ChangeBlocks(old, []BlockChange{{Key: 1, Stored: true}})
	d, id := decide(p, tokenized(1, 2, 3)) // on its way while the image changes
	again := p.Engine("r0").FollowBlocks()
	if p.Engine("r0").ChangeBlocks(old, []BlockChange{{Key: 2, Stored: true}}) {
		t.Error("a follower whose time is over is listened to")
	}
	m := p.replicas[0].cache
	if m.Has(1) || again == old {
		t.Error("the new follower begins with the blocks of the old one")
	}
	p.Finished(Outcome{ID: id, Server: []byte(d.Server)})
	p.Engine("r0").ChangeBlocks(again, []BlockChange{{Key: 5, Stored: true}})
	p.Engine("r0").UnfollowBlocks(again)
	if m = p.replicas[0].cache; m.Has(5) || m.Source() != 0 {
		t.Error("without its follower the image is not a prediction again")
	}
	if p.Engine("none").FollowBlocks() != 0 {
		t.Error("a replica that is not there is followed")
	}
	q, _ := newTestPool(LeastWork{}, 1)
	if q.Engine("r0").FollowBlocks() != 0 {
		t.Error("a pool whose policy does not compare tokens follows blocks")
	}
}

// What a replica had that is gone is not believed of the one in its place.
func TestALiveImageLeavesNothingBehind(t *testing.T) {
	p, _ := newLivePool(2)
	f := p.Engine("r1").FollowBlocks()
	p.Engine("r1").ChangeBlocks(f, []BlockChange{{Key: 7, Stored: true}})
	c := p.config
	c.Replicas = replicas(1)
	p.configure(c)
	c.Replicas = append(replicas(1), ReplicaConfig{Name: "new"})
	p.configure(c)
	if p.replicas[1].cache.Has(7) || hasBlock(p, 7) {
		t.Error("the block is still there")
	}
}

// hasBlock reports whether any replica has the block.
func hasBlock(p *Pool, key uint64) bool {
	_, best := p.caches.model.Match([]uint64{key}, nil)
	return best > 0
}
