package decider

import (
	"math/rand/v2"
	"pointsman/keyed"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pointsman/decider/budget"
)

// PoolConfig describes a pool.
type PoolConfig struct {
	Name       string
	Models     []string
	LoRA       []string
	Policy     Policy // must not be shared between pools
	PolicyName string // what Decision.Why says
	PolicyFlow string // the policy with its options, as in the configuration; "" = its name
	// PolicyKey is equal for equal policies with equal options: then the pool
	// keeps the policy it has, with what that has learned.
	PolicyKey string
	// PrefillPolicy is another instance of the policy, which ranks the replicas that only
	// compute prompts; nil = these are not used.
	PrefillPolicy Policy
	// LegTokens, unless 0, sends every prompt of which the decode replica lacks that many
	// tokens to a prefill replica, even if that takes longer.
	LegTokens int
	Replicas  []ReplicaConfig
	Discover  bool          // replicas come from the proxy, by Pool.Discovered
	Unfound   bool          // Replicas are not found yet, and may not be all there are
	Limit     int           // most requests in flight on a replica; 0 = none
	SlowStart time.Duration // a replica that came up takes its full share after this
	Lease     time.Duration // a reservation that nothing is reported of ends after this; 0 = DefaultLease

	// Filters narrow the candidates, in this order, before the policy ranks them.
	Filters []Filter
	// Spill is how far, in requests, a filter's choice may be above the least
	// loaded candidate before the filter gives way; see View.Keep.
	Spill      int
	LoRASlots  int    // adapters that an engine keeps loaded, if it does not report it; 0 = DefaultLoRASlots
	Node, Zone string // where the agent runs, as in ReplicaConfig

	// Shadow is the share of requests that are decided without telling the proxy,
	// which balances them by itself: to compare. They pass any Admission.
	Shadow float64

	Admission *Admission // who waits and who is refused; nil = all are sent at once

	// RetryAfter is the Retry-After of the 503 that clients get while no replica is
	// up; 0 = no 503, the proxy does what it would do alone.
	RetryAfter time.Duration

	BlockTokens int // prompt tokens in one of Request.Blocks; 0 = DefaultBlockTokens
	CacheTokens int // KV cache of a replica in tokens, as far as known; 0 = DefaultCacheTokens
	// CPUCacheTokens is how many tokens a replica's host keeps after its GPU has evicted
	// them, where the cache is predicted; 0 = none.
	CPUCacheTokens int
	// ContextTokens is the context length of the model, a prompt and its answer; 0 =
	// as the engines report it.
	ContextTokens int
}

// DefaultBlockTokens is how many tokens a block of BlockBytes holds.
const DefaultBlockTokens = BlockBytes / bytesPerToken

// DefaultCacheTokens is about what a replica holds if its model fits its hardware: the
// space that a 70B model leaves on four accelerators of 80 GB, or an 8B model on one. Half
// or twice as much costs some percent of the time to first token.
const DefaultCacheTokens = 500_000

// DefaultLoRASlots is how many adapters an engine is assumed to keep loaded.
const DefaultLoRASlots = 8

// DefaultLease is long enough for a long answer, and short enough that a lost log
// line does not count against a replica for long.
const DefaultLease = 10 * time.Minute

// Pool is the replicas that serve one model. It coordinates its parts: selection,
// account, admission, and the counts of each. All of them live under its lock.
// Choosing and reserving are one step under that lock, so that a burst spreads
// instead of piling up.
type Pool struct {
	name       string
	keyspace   []byte
	hashing    *keyed.Key
	clock      Clock
	*recording // of the decider
	shadowShare
	usesPrefix atomic.Bool
	tokens     atomic.Pointer[TokenOptions] // nil = the policy does not look at tokens
	bounds

	mu     sync.Mutex
	config PoolConfig

	selection                  // who may be chosen, and how
	account                    // what is reserved
	legs          legs         // prompts computed on other replicas
	admission     admission    // what waits
	gone          tombstones   // requests that ended before they were decided
	unplaced      reservations // requests that the proxy places, until it reports where
	bytesPerToken bytesPerTokenEstimator
	answers       answerEstimator
	shadow        shadow

	reportedAt time.Duration // when the proxy last reported on any request
	statesAt   time.Duration // when it last reported the state of its servers

	reclaims reclaims // reservations whose outcomes were lost
	records  records
	report   reporter // of own reservations to other agents
	peers    peers
	ended    Ended // scratch of handToRecorder
	watch    watch
	budgets  *budget.Ledger // of the decider
	stats    PoolStats
	hits     hitRatio
}

func newPool(name string, d *Decider, r *rand.Rand) *Pool {
	p := &Pool{
		name:      name,
		keyspace:  append(slices.Clone(d.Secret), name...),
		hashing:   d.Hashing(),
		clock:     d.clock,
		recording: &d.recording,
		budgets:   d.Budgets,
		selection: selection{members: members{byName: map[string]*Replica{}}, limits: true, view: View{Rand: r}},
		account:   account{reservations: newReservations()},
		unplaced:  newReservations(),
		gone:      newTombstones(),
		statesAt:  -blindAfter - 1,
		report:    reporter{journal: d.Sharing.Journal},
	}
	p.view.pool, p.admission.pool, p.admission.capacity.pool, p.admission.elsewhere.pool = p, p, p, p
	p.report.pool, p.peers.pool, p.peers.self = p, p, d.Sharing.Agent
	p.load.reservations = &p.account.reservations
	return p
}

// Name is the pool's name: HAProxy's backend, or nginx's upstream.
func (p *Pool) Name() string { return p.name }

// Hashing makes the keys of prompt blocks. They depend on the pool's name and on the
// secret, so nobody outside can compute them.
func (p *Pool) Hashing() *keyed.Key { return p.hashing }
