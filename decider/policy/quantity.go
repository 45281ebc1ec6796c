package policy

import "pointsman/decider"

// quantity is a value that a formula can name.
type quantity struct {
	name string
	flag bool // true or false, not a number
	get  func(e *evaluation) float64
}

// evaluation is the candidate and the request that quantities are computed for.
type evaluation struct {
	request *decider.Request
	view    *decider.View
	index   int
	replica *decider.Replica
	mean    float64 // requests in flight per candidate
	home    []int   // replicas of the request's session, in order; empty = no session
}

// zero is a value of the quantity's type, for the compiler.
func (q quantity) zero() any {
	if q.flag {
		return false
	}
	return 0.0
}

// quantities is the table of the names in formulas. docs/policies/expression.md
// explains each.
var quantities = []quantity{
	{"in_flight", false, func(e *evaluation) float64 { return float64(e.replica.InFlight()) }},
	{"waiting", false, func(e *evaluation) float64 { return e.view.WaitingRequests(e.index) }},
	{"running", false, func(e *evaluation) float64 { return e.view.RunningRequests(e.index) }},
	{"tokens", false, func(e *evaluation) float64 { return float64(e.replica.Tokens()) }},
	{"queue_tokens", false, func(e *evaluation) float64 { return e.view.PrefillBacklog(e.index) }},
	{"speed", false, func(e *evaluation) float64 { return e.view.PrefillSpeed(e.index) }},
	{"kv_usage", false, func(e *evaluation) float64 { return e.view.KVUsage(e.index) }},
	{"throughput", false, func(e *evaluation) float64 { return e.view.Throughput(e.index) }},
	{"latency", false, timeToFirstByte},
	{"weight", false, func(e *evaluation) float64 { return float64(e.replica.Weight()) }},
	{"capacity", false, func(e *evaluation) float64 { return float64(e.replica.CacheTokens()) }},
	{"cached", false, func(e *evaluation) float64 { return float64(e.view.Cached(e.index)) }},
	{"uncached", false, func(e *evaluation) float64 { return float64(e.request.Input - e.view.Cached(e.index)) }},
	{"best_cached", false, func(e *evaluation) float64 { return float64(e.view.BestCached()) }},
	{"input", false, func(e *evaluation) float64 { return float64(e.request.Input) }},
	{"output", false, func(e *evaluation) float64 { return float64(max(e.request.Output, 0)) }},
	{"priority", false, func(e *evaluation) float64 { return float64(e.request.Priority) }},
	{"replicas", false, func(e *evaluation) float64 { return float64(len(e.view.Candidates)) }},
	{"mean_in_flight", false, func(e *evaluation) float64 { return e.mean }},
	{"same_node", true, func(e *evaluation) float64 { return truth(e.replica.Near() == 2) }},
	{"same_zone", true, func(e *evaluation) float64 { return truth(e.replica.Near() >= 1) }},
	{"has_lora", true, func(e *evaluation) float64 { return truth(e.replica.HasLoRA(e.request.LoRA)) }},
	{"loras", false, func(e *evaluation) float64 { return float64(e.replica.LoRAs()) }},
	{"session_rank", false, sessionRank},
}

// sessionRank is 0 on the home of the request's session, 1 and 2 on its
// fallbacks, 3 elsewhere, and 0 everywhere when there is no session.
func sessionRank(e *evaluation) float64 {
	for k, i := range e.home {
		if i == e.index {
			return float64(k)
		}
	}
	return float64(len(e.home))
}

// timeToFirstByte is in seconds. It is 0 without a recent measurement, so that the
// replica is tried.
func timeToFirstByte(e *evaluation) float64 {
	if mean, ok := e.replica.TTFT(e.view.Now); ok {
		return mean.Seconds()
	}
	return 0
}
