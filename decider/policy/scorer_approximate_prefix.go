package policy

import "pointsman/decider"

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
const maxLLMDCapacity = routedBlocks * decider.DefaultBlockTokens / llmdBlockTokens

func newApproximatePrefixScorer() *ApproximatePrefixScorer {
	return &ApproximatePrefixScorer{routed: routed{capacity: routedBlocks}, tokens: llmdCapacity * llmdBlockTokens}
}

// Score implements Scorer.
func (s *ApproximatePrefixScorer) Score(r *decider.Request, v *decider.View, out []float64) {
	s.resize(min(max(1, s.tokens/v.BlockTokens), routedBlocks))
	if len(r.Blocks) == 0 {
		noOpinion(out)
		return
	}
	s.matchPrefix(r)
	for c, i := range v.Candidates {
		out[c] = float64(s.matched(v.Replicas[i])) / float64(len(r.Blocks))
	}
}

var (
	_ decider.Scorer         = (*ApproximatePrefixScorer)(nil)
	_ decider.Observer       = (*ApproximatePrefixScorer)(nil)
	_ decider.MemberObserver = (*ApproximatePrefixScorer)(nil)
	_ decider.PrefixUser     = (*ApproximatePrefixScorer)(nil)
)
