package decider

// ApproximatePrefixScorer is the share of the prompt's blocks that the replica
// was sent before and that are not forgotten since: llm-d's prefix scorer in its
// approximate mode, which is its default. It follows what was sent, least
// recently sent first to go, not what engines still hold. Choose it to keep what
// llm-d did; prefix knows better. It has no opinion on a request without blocks.
type ApproximatePrefixScorer struct {
	routed
	tokens int // remembered of a replica
}

// What llm-d remembers of a replica, in blocks of its own: those of vLLM, which
// have 16 tokens, raised to its least.
const (
	llmdBlockTokens = 64
	llmdCapacity    = 31_250
)

// maxLLMDCapacity is what routedBlocks hold of usual text.
const maxLLMDCapacity = routedBlocks * DefaultBlockTokens / llmdBlockTokens

func newApproximatePrefixScorer() *ApproximatePrefixScorer {
	return &ApproximatePrefixScorer{routed: routed{capacity: routedBlocks}, tokens: llmdCapacity * llmdBlockTokens}
}

// Score implements Scorer.
func (s *ApproximatePrefixScorer) Score(r *Request, v *View, out []float64) {
	s.resize(min(max(1, s.tokens/v.BlockTokens), routedBlocks))
	if len(r.Blocks) == 0 {
		noOpinion(out)
		return
	}
	s.matchPrefix(r)
	for c, i := range v.Candidates {
		out[c] = float64(s.depth[v.Replicas[i].Slot()]) / float64(len(r.Blocks))
	}
}

var (
	_ Scorer         = (*ApproximatePrefixScorer)(nil)
	_ Observer       = (*ApproximatePrefixScorer)(nil)
	_ MemberObserver = (*ApproximatePrefixScorer)(nil)
	_ PrefixUser     = (*ApproximatePrefixScorer)(nil)
)
