package policy

import "pointsman/decider"

// ApproximatePrefixScorer is the share of the prompt's blocks that the replica
// was sent before: llm-d's prefix scorer in its approximate mode, which is the
// default there. It follows what was sent, not what engines still hold, and
// forgets what was sent least recently first. It has no opinion on a request
// without blocks. Choose it to compare with llm-d; the scorer prefix knows more.
type ApproximatePrefixScorer struct {
	routed
	tokens int // that are remembered of a replica
}

// What llm-d remembers of a replica. Its blocks have the tokens of vLLM's, 16, but
// at least 64.
const (
	llmdBlockTokens = 64
	llmdCapacity    = 31_250
)

// maxLLMDCapacity is routedBlocks of English text, in llm-d's blocks.
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
