package metrics

import (
	"errors"
	"strings"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/decider"
)

// modelsEvery is how often the list of models is requested. Models with a parent are
// adapters.
const modelsEvery = 30 * time.Second

// Events are what a Scraper reports besides signals. They are called by the goroutine of
// Poller.Run.
type Events struct {
	// Adapters are among the models that the engine lists.
	Adapters func(names []string)
	// ModelsUnknown: the engine has restarted, and does not list its models.
	ModelsUnknown func()
	// MaybeReplaced: the engine has restarted or, unless restarted, answers again after
	// failures. It may be another one, and what was learned of its API may not hold.
	MaybeReplaced func(restarted bool)
}

// maybeReplaced handles that the engine may be another one than before: it is asked for
// its models at once.
func (s *Scraper) maybeReplaced(now time.Duration, restarted bool) {
	s.dueModels, s.modelsOld = now, true
	s.events.MaybeReplaced(restarted)
}

// handleModels handles the answer to the request for the list of models. Without an answer
// nothing changes; a refusal counts if the engine may be another one than the last list's.
func (s *Scraper) handleModels(page []byte, err error) {
	_, refused := errors.AsType[statusError](err)
	switch {
	case err == nil:
		s.modelsOld = false
		s.readModels(page)
	case s.modelsOld && (refused || errors.Is(err, errUnknown)):
		s.modelsOld = false
		s.events.ModelsUnknown()
	}
}

// readModels reports the context length and the adapters in a list of models.
func (s *Scraper) readModels(page []byte) {
	var answer struct {
		Data []struct {
			ID     string  `json:"id"`
			Parent *string `json:"parent"`
			Length float64 `json:"max_model_len"`
		} `json:"data"`
	}
	if sonic.Unmarshal(page, &answer) != nil {
		return
	}
	names, context := []string{}, 0.0
	for _, m := range answer.Data {
		context = max(context, min(m.Length, 1e9))
		if m.Parent != nil && m.ID != "" && len(m.ID) <= maxAdapterName {
			names = append(names, strings.Clone(m.ID))
		}
	}
	s.pool.Engine(s.replica).ContextTokens(int(context))
	s.events.Adapters(names)
}

// maxAdapterName bounds the names of adapters, in bytes.
const maxAdapterName = 256

// reportToPool reports a reading to the pool. It returns whether the engine has
// restarted since the last one, or is one of another kind.
func (s *Scraper) reportToPool(r *Reading, now time.Duration) (restarted bool) {
	last := &s.last
	fell := func(before, after int64) bool { return before >= 0 && after >= 0 && after < before }
	replaced := s.seen && r.Kind != last.Kind
	restarted = replaced || s.seen && (fell(last.FirstTokens, r.FirstTokens) || fell(last.PromptTokens, r.PromptTokens) || fell(last.Finished, r.Finished))
	switch {
	case replaced:
		s.report.replaced(s, r)
		s.events.ModelsUnknown()
		s.pool.Engine(s.replica).Replaced()
		s.alive()
	case restarted:
		s.pool.Engine(s.replica).Restarted()
	}
	if r.Loaded {
		s.pool.Engine(s.replica).Signals(decider.Signals{
			Waiting: r.Waiting, Running: r.Running, KVUsage: r.KVUsage, CacheTokens: r.CacheTokens, BlockTokens: r.BlockTokens,
			Throughput: s.finishRate.rate(r.Finished, now),
		})
	}
	// The first reading only shows where the counters stand.
	if s.seen && !restarted {
		if r.FirstTokens >= 0 && last.FirstTokens >= 0 {
			s.pool.Engine(s.replica).FirstTokens(int(r.FirstTokens - last.FirstTokens))
		}
		s.pool.Engine(s.replica).Generated(increase(last.OutputTokens, r.OutputTokens))
		if r.PromptTokens >= 0 && last.PromptTokens >= 0 {
			s.pool.Engine(s.replica).Prompts(increase(last.PromptTokens, r.PromptTokens), increase(last.QueryTokens, r.QueryTokens), increase(last.HitTokens, r.HitTokens))
		}
	}
	if restarted || !s.seen {
		s.finishRate = rate{}
	}
	if (!s.seen || replaced) && r.MaxLoRA > 0 || string(r.Adapters) != string(last.Adapters) || r.MaxLoRA != last.MaxLoRA {
		s.pool.Engine(s.replica).AdaptersLoaded(adapterNames(string(r.Adapters)), r.MaxLoRA)
	}
	adapters := last.Adapters[:0]
	s.last, s.seen = *r, true
	s.last.Adapters = append(adapters, r.Adapters...) // r.Adapters is part of the page
	return restarted
}

// adapterNames splits the names in a label's value, as it is written.
func adapterNames(list string) (names []string) {
	for name := range strings.SplitSeq(unescape.Replace(list), ",") {
		if name = strings.TrimSpace(name); name != "" && len(name) <= maxAdapterName {
			names = append(names, name)
		}
	}
	return names
}

// increase returns by how much a counter has grown, 0 if it is not known.
func increase(before, after int64) int {
	if before < 0 || after < before {
		return 0
	}
	return int(after - before)
}

// rate is how many requests an engine finishes per second.
type rate struct {
	at      time.Duration
	count   int64
	last    float64
	started bool
}

// rate records a count and returns the rate over the last second or longer.
func (f *rate) rate(count int64, now time.Duration) float64 {
	switch elapsed := now - f.at; {
	case count < 0:
		return 0
	case !f.started:
		f.at, f.count, f.started = now, count, true
	case elapsed >= time.Second:
		f.last = float64(max(0, count-f.count)) / elapsed.Seconds()
		f.at, f.count = now, count
	}
	return f.last
}
