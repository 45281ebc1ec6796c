package decider

// The speed of a replica is the cost of what it computed over the time that it took, both
// decayed by speedMemory of busy time, and drawn towards the pool's mean as if that had
// been measured for speedPrior. A few false samples must not lead it, since lengths are what
// clients claim and what is cached is a guess: a sample counts for at most sampleSpread
// times more or less than expected, and for at most sampleWeight usual ones.
const (
	speedMemory  = 120.0 // seconds
	speedPrior   = 20.0  // seconds
	sampleSpread = 2.5
	sampleWeight = 2
	// usualOver is over how many samples the usual one is a mean.
	usualOver = 32
)

// rateEstimator learns a rate from samples of an amount and the time it took.
type rateEstimator struct {
	amount, seconds float64
	usual           float64 // seconds that a sample is expected to take, 0 before the first
}

// add takes in a sample, given the rate expected.
func (e *rateEstimator) add(amount, seconds, expected float64) {
	if !(amount > 0) || !(seconds >= 0) {
		return
	}
	due := amount / expected
	if e.usual == 0 {
		e.usual = due
	}
	if most := min(sampleWeight*e.usual, speedMemory/4); due > most {
		amount, seconds, due = amount*most/due, seconds*most/due, most
	}
	e.usual += (due - e.usual) / usualOver
	seconds = min(max(seconds, due/sampleSpread), due*sampleSpread)
	keep := 1 - seconds/speedMemory // at least 0: seconds are at most sampleSpread/4 of the memory
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
