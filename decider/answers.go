package decider

import "math"

// answerEstimator estimates the tokens of answers by their bytes, which is all that a proxy
// reports. It starts from the wire formats and learns the rest from engines that count
// their output tokens. It lives under the pool's lock.
type answerEstimator struct {
	// By kind of answer: tokens as the engines counted them, and as estimated.
	counted, estimated [2]float64
}

// The usual bytes of an answer besides its text and the name of the model: around the text
// of a whole answer, and in each event of a stream.
const (
	wholeBytes = 380
	eventBytes = 200
	modelBytes = 24 // of a name that is not known
)

// answersPrior is the evidence, in tokens, for the usual bytes.
const answersPrior = 5_000

// Streamed answers and whole ones differ in their bytes.
const (
	whole = iota
	streamed
)

func kindOf(r *Request) int {
	if r.Stream {
		return streamed
	}
	return whole
}

// mostBytes bounds the reported length of an answer.
const mostBytes = 1 << 32

// usual estimates the tokens of an answer by the usual bytes.
func usual(r *Request, bytes int) float64 {
	bytes = min(bytes, mostBytes)
	model := len(r.Model)
	if model == 0 {
		model = modelBytes
	}
	if !r.Stream {
		return max(1, float64(bytes-wholeBytes-model)/bytesPerToken)
	}
	return max(1, float64(bytes)/float64(eventBytes+model)-1) // the first event has no token
}

// tokens estimates the tokens of an answer; -1 = not known.
func (a *answerEstimator) tokens(r *Request, o *Outcome) int {
	switch {
	case !o.computed():
		return -1
	case r.OneToken:
		return 1
	case o.Bytes <= 0:
		return -1
	}
	n := int(usual(r, o.Bytes)*a.scale(kindOf(r)) + 0.5)
	if r.Output > 0 {
		n = min(n, r.Output)
	}
	return max(n, 1)
}

// scale is the learned factor that corrects usual.
func (a *answerEstimator) scale(kind int) float64 {
	s := (a.counted[kind] + answersPrior) / (a.estimated[kind] + answersPrior)
	return min(20, max(0.05, s))
}

// ended adds the answer of v to the estimate that is compared with the engine's count.
func (a *answerEstimator) ended(v *reservation, o *Outcome) {
	if o.Bytes > 0 && o.computed() && v.isKnown() {
		v.replica.promptWindow.answers[kindOf(&v.request)] += usual(&v.request, o.Bytes)
	}
}

// learn compares the estimated tokens of answers, by kind, with the tokens that the engine
// counted for all of them. It learns a kind's factor only if most of the answers are of
// that kind.
func (a *answerEstimator) learn(estimated [2]float64, counted float64) {
	for kind := range estimated {
		other := estimated[1-kind] * a.scale(1-kind)
		if e := estimated[kind]; e > 4*other && counted > other && !math.IsInf(e, 0) {
			a.counted[kind] = a.counted[kind]*(1-scaleDecay) + counted - other
			a.estimated[kind] = a.estimated[kind]*(1-scaleDecay) + e
		}
	}
}

// Generated reports how many output tokens the engine has counted since the last call.
// Call it before Prompts.
func (e Engine) Generated(tokens int) {
	p, r := e.lock()
	defer p.mu.Unlock()
	if r != nil {
		r.promptWindow.generated += max(tokens, 0)
	}
}
