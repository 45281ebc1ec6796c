package decider

// RunningScorer prefers few requests that generate: as the engine says, or
// else as the pool has counted.
type RunningScorer struct{}

// Score implements Scorer.
func (RunningScorer) Score(_ *Request, v *View, out []float64) {
	for c, i := range v.Candidates {
		out[c] = v.Replicas[i].runningNow()
	}
	lowestBest(out)
}

var _ Scorer = RunningScorer{}
