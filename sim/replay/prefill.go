package replay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"pointsman/decider"
	"pointsman/sim"
)

// prefillPoll is how often the agent reads the counts of first tokens of replicas that
// only compute prompts: as production does where requests wait.
const prefillPoll = 100 * time.Millisecond

// replicaConfig describes replica i to an agent.
func (s *simulation) replicaConfig(i int) decider.ReplicaConfig {
	c := decider.ReplicaConfig{Name: replicaName(i)}
	if s.o.Prefill > 0 {
		c.Address, c.Role = c.Name, decider.RoleDecode
		if i < s.o.Prefill {
			c.Role = decider.RolePrefill
		}
	}
	return c
}

// pollPrefill schedules the first polls of the prefill replicas. With several agents, none
// knows whose prompts they are.
func (s *simulation) pollPrefill() {
	if s.o.Poll > 0 || s.o.Agents > 1 {
		return
	}
	for i := range s.o.Prefill {
		s.events.push(event{at: prefillPoll * time.Duration(i+1) / time.Duration(s.o.Prefill), kind: eventPoll, replica: i})
	}
}

// pollEvery is the interval at which replica k's count of first tokens is read.
func (s *simulation) pollEvery(k int) time.Duration {
	if s.o.Poll == 0 && k < s.o.Prefill {
		return prefillPoll
	}
	return s.o.Poll
}

// sendLeg makes replica k compute the prompt of f, which its decode replica then serves.
func (s *simulation) sendLeg(f *flight, k int) {
	s.load.add(f.replica, 1)
	f.leg = sim.Job{Blocks: f.job.Blocks, Input: f.job.Input, Output: 1, Owner: f}
	f.job.Received = true
	if err := s.engines[k].Submit(s.now, &f.leg); err != nil {
		s.end(f, flightRefused)
		return
	}
	s.schedule(k)
	s.report(eventConnected, f)
}

// transfer sends the KV cache of f from replica k, one request's after another's: all of
// the prompt that its decode replica lacks.
func (s *simulation) transfer(k int, f *flight) {
	s.firstTokens[k]++
	e := s.engines[f.replica]
	blocks := f.job.Blocks[:min(len(f.job.Blocks), f.job.Input/s.blockTokens)]
	held := 0
	for held < len(blocks) && e.Holds(blocks[held]) {
		held++
	}
	bytes := float64(f.job.Input-held*s.blockTokens) * float64(s.o.Profile.KVBytes)
	s.links[k] = max(s.links[k], s.now) + time.Duration(bytes/s.o.Transfer*float64(time.Second))
	s.events.push(event{at: s.links[k], kind: eventMoved, flight: f})
}

// moved queues f at its decode replica.
func (s *simulation) moved(f *flight) { s.queue(f.replica, f) }

// any reports whether anything happens at all.
func (e *Events) any() bool { return len(e.Changes) > 0 || e.LostFor > 0 || e.Foreign > 0 }

// split is the policies of an experiment, each followed by itself with replicas that only
// compute prompts.
func (e *Experiment) split() (list []Policy) {
	for _, p := range e.Policies {
		list = append(list, p)
		if p.New == nil {
			continue // a bound
		}
		for _, n := range e.Splits {
			q := p
			q.Prefill, q.Name = n, fmt.Sprintf("%s %d:%d", p.Name, n, e.Replicas-n)
			list = append(list, q)
		}
	}
	return list
}

// ParseSplits reads numbers of replicas for prefill, such as 1,2,4.
func ParseSplits(text string) (list []int, err error) {
	if text == "" {
		return nil, nil
	}
	for _, part := range strings.Split(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 || slices.Contains(list, n) {
			return nil, fmt.Errorf("prefill: %q, want numbers of replicas, each once, such as 1,2,4", text)
		}
		list = append(list, n)
	}
	return list, nil
}

// units are those of ParseTransfer, in bytes/s.
var units = []struct {
	name  string
	bytes float64
}{{"gb/s", 1e9}, {"gbit/s", 1e9 / 8}, {"mb/s", 1e6}, {"mbit/s", 1e6 / 8}}

// ParseTransfer reads the speed of a link: 12.5GB/s, or 100Gbit/s.
func ParseTransfer(text string) (bytes float64, err error) {
	for _, u := range units {
		if number, ok := strings.CutSuffix(strings.ToLower(text), u.name); ok {
			if x, err := strconv.ParseFloat(strings.TrimSpace(number), 64); err == nil && x > 0 && x < 1e6 {
				return x * u.bytes, nil
			}
		}
	}
	return 0, fmt.Errorf("transfer: %q, want a speed such as 10GB/s or 100Gbit/s", text)
}

// sameGoodput is the largest difference between two goodputs that count as equal.
const sameGoodput = 0.01

// verdict compares, for each policy, its best split into prefill and decode replicas with
// no split.
func (b *tableWriter) verdict(rows []Summary) {
	for i := 0; i < len(rows); {
		alike, best := &rows[i], -1
		k := i + 1
		for ; k < len(rows) && strings.HasPrefix(rows[k].Policy, alike.Policy+" "); k++ {
			if best < 0 || rows[k].Goodput > rows[best].Goodput {
				best = k
			}
		}
		if i = k; best < 0 {
			continue
		}
		r, worth := &rows[best], "about as good"
		switch gain := r.Goodput - alike.Goodput; {
		case gain > sameGoodput:
			worth = "worth it here"
		case gain < -sameGoodput:
			worth = "not worth it here"
		}
		b.printf("%s is %s: goodput %.1f%% against %.1f%%, TTFT p90 %s s against %s, TPOT p90 %s ms against %s.\n", r.Policy, worth,
			100*r.Goodput, 100*alike.Goodput, seconds(r.TTFT.P90), seconds(alike.TTFT.P90), millis(r.TPOT.P90), millis(alike.TPOT.P90))
	}
}
