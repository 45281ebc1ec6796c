package fakevllm

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"pointsman/sim"
)

// histogram is a Prometheus histogram.
type histogram struct {
	bounds []float64 // upper bounds in seconds
	counts []uint64  // one more, for +Inf
	sum    float64
}

func (h *histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.counts[i]++
	h.sum += v
}

func newHistogram(bounds ...float64) histogram {
	return histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

// metrics are the metrics that sim.Engine does not count itself.
type metrics struct {
	firstToken, interToken, requestTime histogram
	reasons                             map[string]uint64
}

func (m *metrics) init() {
	m.firstToken = newHistogram(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560)
	m.interToken = newHistogram(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
	m.requestTime = newHistogram(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
	m.reasons = map[string]uint64{"stop": 0, "length": 0, "abort": 0}
}

func (m *metrics) finished(reason string) { m.reasons[reason]++ }

// page is a metrics page in the Prometheus text format.
type page struct {
	b      []byte
	labels string
	heads  map[string]bool // of the metrics begun; nil = each has one sample
}

func (p *page) head(name, kind, help string) {
	if p.heads[name] {
		return
	}
	if p.heads != nil {
		p.heads[name] = true
	}
	p.b = append(p.b, "# HELP "+name+" "+help+"\n# TYPE "+name+" "+kind+"\n"...)
}

// line writes one sample. extra are further labels, each with a leading comma.
func (p *page) line(name, extra string, v float64) {
	p.b = append(p.b, name...)
	p.b = append(append(append(p.b, '{'), p.labels...), extra...)
	p.b = append(p.b, "} "...)
	p.b = strconv.AppendFloat(p.b, v, 'f', -1, 64)
	p.b = append(p.b, '\n')
}

// bare writes a sample without labels.
func (p *page) bare(name string, v float64) {
	p.b = append(append(p.b, name...), ' ')
	p.b = append(strconv.AppendFloat(p.b, v, 'f', -1, 64), '\n')
}

func (p *page) single(name, kind, help string, v float64) {
	p.head(name, kind, help)
	p.line(name, "", v)
}

func (p *page) histogram(name, help string, h *histogram) {
	p.head(name, "histogram", help)
	total := uint64(0)
	for i, n := range h.counts {
		total += n
		le := "+Inf"
		if i < len(h.bounds) {
			le = strconv.FormatFloat(h.bounds[i], 'g', -1, 64)
		}
		p.line(name+"_bucket", label("le", le), float64(total))
	}
	p.line(name+"_sum", "", h.sum)
	p.line(name+"_count", "", float64(total))
}

// label formats a further label of a sample.
func label(name, value string) string {
	return "," + name + `="` + labelEscapes.Replace(value) + `"`
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// serveMetrics serves GET /metrics with vLLM's metric names.
func (s *Server) serveMetrics(x *exchange) {
	body := s.metricsPage()
	x.raw(http.StatusOK, "text/plain; version=1.0.0; charset=utf-8", body)
}

func (s *Server) metricsPage() []byte {
	p := &page{heads: map[string]bool{}}
	for rank, e := range s.ranks {
		s.rankPage(p, rank, e)
	}
	return p.b
}

// rankPage writes the samples of one engine.
func (s *Server) rankPage(p *page, rank int, e *engine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	st := e.model.Stats()
	p.labels = `engine="` + itoa(rank) + `"` + label("model_name", s.o.Models[0])
	p.single("vllm:num_requests_running", "gauge", "Number of requests in model execution batches.", float64(st.Running)+float64(e.held.Load()))
	p.single("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", float64(st.Waiting))
	p.single("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", st.KVUsage())
	p.single("vllm:prefix_cache_queries_total", "counter", "Prefix cache queries, in terms of number of queried tokens.", float64(st.QueryTokens))
	p.single("vllm:prefix_cache_hits_total", "counter", "Prefix cache hits, in terms of number of cached tokens.", float64(st.HitTokens-st.LoadedTokens))
	if s.o.CPUCacheTokens > 0 {
		p.single("vllm:external_prefix_cache_hits_total", "counter", "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.", float64(st.LoadedTokens))
	}
	p.single("vllm:num_preemptions_total", "counter", "Cumulative number of preemption from the engine.", float64(st.Preemptions))
	p.single("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.", float64(st.PromptTokens))
	p.single("vllm:generation_tokens_total", "counter", "Number of generation tokens processed.", float64(st.GenerationTokens))
	p.head("vllm:request_success_total", "counter", "Count of successfully processed requests.")
	for _, reason := range []string{"stop", "length", "abort"} {
		p.line("vllm:request_success_total", label("finished_reason", reason), float64(e.metrics.reasons[reason]))
	}
	p.histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", &e.metrics.firstToken)
	p.histogram("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", &e.metrics.interToken)
	p.histogram("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", &e.metrics.requestTime)

	p.labels = `engine="` + itoa(rank) + `"`
	p.head("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
	p.line("vllm:cache_config_info", label("block_size", itoa(st.BlockSize))+label("cache_dtype", "auto")+
		label("enable_prefix_caching", "True")+label("kv_cache_size_tokens", itoa(st.TotalBlocks*st.BlockSize))+label("num_gpu_blocks", itoa(st.TotalBlocks*len(s.ranks))), 1)
	if len(s.o.LoRA) > 0 {
		running, waiting := e.adapters()
		p.labels = `max_lora="` + itoa(s.o.MaxLoRA) + `"`
		p.head("vllm:lora_requests_info", "gauge", "Running stats on lora requests.")
		p.line("vllm:lora_requests_info", label("running_lora_adapters", running)+label("waiting_lora_adapters", waiting),
			float64(time.Now().UnixMicro())/1e6)
	}
}

// adapters returns the LoRA names of the running and of the waiting jobs.
func (e *engine) adapters() (running, waiting string) {
	var sets [2][]string
	e.model.Jobs(func(j *sim.Job, isRunning bool) {
		name := j.Owner.(*sequence).lora
		i := 0
		if !isRunning {
			i = 1
		}
		if name != "" && !slices.Contains(sets[i], name) {
			sets[i] = append(sets[i], name)
		}
	})
	for _, set := range sets {
		slices.SortFunc(set, cmp.Compare[string])
	}
	return strings.Join(sets[0], ","), strings.Join(sets[1], ",")
}

func itoa(n int) string { return strconv.Itoa(n) }
