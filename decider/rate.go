package decider

// The speed of a replica is the cost of what it computed over the time that it took, both
// decayed by speedMemory of busy time, and drawn towards the pool's mean as if that had
// been measured for speedPrior. A single sample counts for at most sampleSpread times more
// or less than expected, and for a quarter of the memory: lengths are what clients claim.
const (
	speedMemory  = 120.0 // seconds
	speedPrior   = 20.0  // seconds
	sampleSpread = 8
)

// rateEstimator learns a rate from samples of an amount and the time it took.
type rateEstimator struct{ amount, seconds float64 }

// add takes in a sample, given the rate expected.
func (e *rateEstimator) add(amount, seconds, expected float64) {
	if !(amount > 0) || !(seconds >= 0) {
		return
	}
	seconds = min(max(seconds, amount/expected/sampleSpread), amount/expected*sampleSpread)
	if seconds > speedMemory/4 {
		amount, seconds = amount*speedMemory/4/seconds, speedMemory/4
	}
	keep := 1 - seconds/speedMemory
	e.amount = e.amount*keep + amount
	e.seconds = e.seconds*keep + seconds
}

// fade scales the evidence by keep.
func (e *rateEstimator) fade(keep float64) {
	e.amount *= keep
	e.seconds *= keep
}

// rate is the learned rate, drawn towards prior.
func (e *rateEstimator) rate(prior float64) float64 {
	return (e.amount + speedPrior*prior) / (e.seconds + speedPrior)
}

// isNear reports whether the rate is within speedNoise of prior, where that shows without a
// division.
func (e *rateEstimator) isNear(prior float64) bool {
	const within = 0.99 * speedNoise // beyond rounding
	amount, expected := e.amount+speedPrior*prior, prior*(e.seconds+speedPrior)
	return amount < expected*within && expected < amount*within
}
