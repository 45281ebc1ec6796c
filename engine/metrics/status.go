package metrics

import "time"

// Status shows operators the signals of one replica.
type Status struct {
	Pool     string  `json:"pool"`
	Replica  string  `json:"replica"`
	Address  string  `json:"address"`
	Path     string  `json:"path"`
	Engine   string  `json:"engine"` // by its metrics; "" = unknown
	Error    string  `json:"error,omitempty"`
	Age      float64 `json:"age_s"`    // since the last answer; -1 = none yet
	Pause    float64 `json:"pause_s"`  // until the next scrape
	Took     float64 `json:"took_s"`   // of the last scrape
	Answers  uint64  `json:"answers"`  // scrapes that succeeded
	Failures uint64  `json:"failures"` // scrapes that failed
	Restarts uint64  `json:"restarts"` // times that the counters restarted
	Waiting  int     `json:"waiting"`  // requests
	Running  int     `json:"running"`  // requests
	KVUsage  float64 `json:"kv_usage"` // 0 to 1
	Cache    int     `json:"cache"`    // tokens; 0 = not reported
	Firsts   bool    `json:"firsts"`   // first tokens are counted
	Prompts  bool    `json:"prompts"`  // prompt tokens are counted
	HitRate  float64 `json:"hit_rate"` // of the prefix cache since the engine's start; -1 = not reported
	Adapters string  `json:"adapters"` // LoRA adapters in use
	MaxLoRA  int     `json:"max_lora"` // how many fit; 0 = not reported

	answered time.Time // when the last scrape succeeded
}

// updateStatus updates what Status returns.
func (s *Scraper) updateStatus(r *Reading, took, pause time.Duration, restarted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &s.status
	v.Error, v.Path, v.Engine = "", s.paths[s.path], r.Kind.String()
	v.Took, v.Pause, v.answered = took.Seconds(), pause.Seconds(), time.Now()
	v.Answers++
	if restarted {
		v.Restarts++
	}
	v.Waiting, v.Running, v.KVUsage, v.Cache = r.Waiting, r.Running, r.KVUsage, r.CacheTokens
	v.Firsts, v.Prompts, v.MaxLoRA = r.FirstTokens >= 0, r.PromptTokens >= 0, r.MaxLoRA
	v.HitRate = -1
	if r.QueryTokens > 0 && r.HitTokens >= 0 {
		v.HitRate = float64(r.HitTokens) / float64(r.QueryTokens)
	}
	if v.Adapters != string(r.Adapters) {
		v.Adapters = string(r.Adapters)
	}
}

// Status returns the signals as of the last scrape. It may be called at any time.
func (s *Scraper) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.status
	if !v.answered.IsZero() {
		v.Age = time.Since(v.answered).Seconds()
	}
	return v
}
