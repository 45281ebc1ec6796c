package metrics

import (
	"bytes"
	"math"
	"strconv"
	"time"
)

// Reading is the content of one page of metrics. If the page covers several engines,
// as with data parallelism, counts are summed and shares averaged.
type Reading struct {
	Kind Kind

	Waiting, Running int     // requests
	Loaded           bool    // the page has Waiting and Running
	KVUsage          float64 // used share of the KV cache, 0 to 1
	CacheTokens      int     // size of the KV cache; 0 = not reported
	BlockTokens      int     // in a block of it; 0 = not reported

	// Counters since the engine's start; -1 = not reported.
	FirstTokens  int64 // requests that have had their first token
	PromptTokens int64 // of requests, cached or not
	HitTokens    int64 // of QueryTokens found in the prefix cache
	QueryTokens  int64
	OutputTokens int64
	Finished     int64 // requests

	// Adapters are the names of the LoRA adapters in use, separated by commas. It is
	// a part of the page. MaxLoRA is how many fit; 0 = not reported.
	Adapters []byte
	MaxLoRA  int
}

// field is a value of a page. Some have an older name, which has a field of its own:
// a page may have both, and the older one counts only where the newer is missing.
type field uint8

const (
	fieldWaiting field = iota
	fieldRunning
	fieldUsage
	fieldUsageOld
	fieldFirstTokens
	fieldPromptTokens
	fieldHits
	fieldHitsOld
	fieldQueries
	fieldQueriesOld
	fieldFinished
	fieldComputed // prompt tokens that were not cached
	fieldReused   // those that were
	fieldOutputTokens
	fieldTokens         // size of the cache in tokens
	fieldInfoTokens     // the same, from labels
	fieldSharedTokens   // the same, but of all ranks together, in the sample of each
	fieldInfoBlockSize  // tokens in a block, from labels
	fieldBlocks         // the same, in blocks
	fieldBlockSize      // of so many tokens
	fieldCacheInfo      // both of these as labels
	fieldLoRA           // adapters as labels
	fieldTritonRequests // Triton's; a label says which
	fieldTritonBlocks
	fields
)

// lookup returns the field of the samples of that name and the kind of engine, or
// Unknown.
func lookup(name []byte) (field, Kind) {
	switch string(name) {
	case "vllm:num_requests_waiting":
		return fieldWaiting, VLLM
	case "vllm:num_requests_running":
		return fieldRunning, VLLM
	case "vllm:kv_cache_usage_perc":
		return fieldUsage, VLLM
	case "vllm:gpu_cache_usage_perc":
		return fieldUsageOld, VLLM
	case "vllm:time_to_first_token_seconds_count":
		return fieldFirstTokens, VLLM
	case "vllm:prompt_tokens_total":
		return fieldPromptTokens, VLLM
	case "vllm:generation_tokens_total":
		return fieldOutputTokens, VLLM
	case "vllm:prefix_cache_hits_total":
		return fieldHits, VLLM
	case "vllm:gpu_prefix_cache_hits_total":
		return fieldHitsOld, VLLM
	case "vllm:prefix_cache_queries_total":
		return fieldQueries, VLLM
	case "vllm:gpu_prefix_cache_queries_total":
		return fieldQueriesOld, VLLM
	case "vllm:request_success_total":
		return fieldFinished, VLLM
	case "vllm:cache_config_info":
		return fieldCacheInfo, VLLM
	case "vllm:lora_requests_info":
		return fieldLoRA, VLLM

	case "sglang:num_queue_reqs":
		return fieldWaiting, SGLang
	case "sglang:num_running_reqs":
		return fieldRunning, SGLang
	case "sglang:token_usage":
		return fieldUsage, SGLang
	case "sglang:time_to_first_token_seconds_count":
		return fieldFirstTokens, SGLang
	case "sglang:prompt_tokens_total":
		return fieldPromptTokens, SGLang
	case "sglang:generation_tokens_total":
		return fieldOutputTokens, SGLang
	case "sglang:cached_tokens_total":
		return fieldHits, SGLang
	case "sglang:num_requests_total":
		return fieldFinished, SGLang
	case "sglang:max_total_num_tokens":
		return fieldTokens, SGLang
	case "sglang:num_pages":
		return fieldBlocks, SGLang
	case "sglang:page_size":
		return fieldBlockSize, SGLang
	case "sglang:cache_config_info":
		return fieldCacheInfo, SGLang

	case "trtllm_num_requests_waiting":
		return fieldWaiting, TensorRT
	case "trtllm_num_requests_running":
		return fieldRunning, TensorRT
	case "trtllm_kv_cache_utilization":
		return fieldUsage, TensorRT
	case "trtllm_time_to_first_token_seconds_count":
		return fieldFirstTokens, TensorRT
	case "trtllm_request_success_total":
		return fieldFinished, TensorRT
	case "trtllm_kv_cache_max_blocks":
		return fieldBlocks, TensorRT
	case "trtllm_kv_cache_tokens_per_block":
		return fieldBlockSize, TensorRT

	case "nv_trt_llm_request_metrics":
		return fieldTritonRequests, Triton
	case "nv_trt_llm_kv_cache_block_metrics":
		return fieldTritonBlocks, Triton

	case "llamacpp:tokens_predicted_total":
		return fieldOutputTokens, LlamaCpp
	case "llamacpp:requests_deferred":
		return fieldWaiting, LlamaCpp
	case "llamacpp:requests_processing":
		return fieldRunning, LlamaCpp
	case "llamacpp:prompt_tokens_total":
		return fieldComputed, LlamaCpp
	case "llamacpp:prompt_tokens_cached_total":
		return fieldReused, LlamaCpp
	case "llamacpp:kv_cache_usage_ratio":
		return fieldUsage, LlamaCpp
	}
	return fields, Unknown
}

// maxCache is more than any engine holds, in tokens.
const maxCache = 100_000_000

// maxBlock is more than any block has, in tokens.
const maxBlock = 1 << 16

// samples sums the samples of each field.
type samples struct {
	sum        [fields]float64
	n          [fields]int
	newestLoRA float64 // time of the newest sample of adapters
	rank       int     // the only one that counts, or allRanks
	first      int     // the lowest number of a vLLM's rank; -1 = none yet
	otherRanks int     // how many others say what caches they have
}

// add adds a sample.
func (t *samples) add(f field, v float64) {
	t.sum[f] += v
	t.n[f]++
}

// Read fills r from a page in the Prometheus text format or OpenMetrics. It skips
// unknown and malformed lines; if it knows no line, r.Kind is Unknown. r.Adapters is
// part of page. Read does not allocate.
func (r *Reading) Read(page []byte) { r.ReadRank(page, allRanks) }

// readLine reads one line of a page.
func (r *Reading) readLine(line []byte, t *samples) {
	if len(line) == 0 {
		return
	}
	switch line[0] {
	case 'v', 's', 't', 'n', 'l':
	default:
		return
	}
	at := bytes.IndexByte(line, '{')
	if at < 0 {
		if at = bytes.IndexByte(line, ' '); at < 0 {
			return
		}
	}
	f, kind := lookup(line[:at])
	if kind == Unknown {
		return
	}
	var labels []byte
	rest := line[at:]
	if rest[0] == '{' {
		end := labelsEnd(rest)
		if end < 0 {
			return
		}
		labels, rest = rest[1:end], rest[end+1:]
	}
	v, ok := parseValue(rest)
	if !ok {
		return
	}
	if rank := labelValue(labels, "tp_rank"); len(rank) > 0 && string(rank) != "0" {
		return // all ranks of an engine report the same
	}
	if !t.counts(labels, f) {
		return
	}
	r.Kind = kind
	switch f {
	case fieldCacheInfo:
		size, blocks := labelNumber(labels, "block_size", "page_size"), labelNumber(labels, "num_gpu_blocks", "num_pages")
		// Where groups of layers share the blocks, only vLLM itself knows the product.
		switch tokens := labelNumber(labels, "kv_cache_size_tokens", ""); {
		case tokens > 0:
			t.add(fieldInfoTokens, tokens)
		case kind == VLLM && size*blocks > 0:
			t.add(fieldSharedTokens, size*blocks)
		case size*blocks > 0:
			t.add(fieldInfoTokens, size*blocks)
		}
		if size > 0 {
			t.add(fieldInfoBlockSize, size)
		}
	case fieldLoRA:
		// Each past set of adapters is a sample of its own. Its value is the time, or
		// the sum of the times at which several API servers have seen it.
		if v /= max(1, math.Round(v/float64(time.Now().Unix()))); v >= t.newestLoRA {
			t.newestLoRA = v
			if t.rank == allRanks {
				r.Adapters = labelValue(labels, "running_lora_adapters")
			}
			r.MaxLoRA = int(labelNumber(labels, "max_lora", ""))
		}
	case fieldTritonRequests:
		switch string(labelValue(labels, "request_type")) {
		case "waiting":
			t.add(fieldWaiting, v)
		case "scheduled":
			t.add(fieldRunning, v)
		}
	case fieldTritonBlocks:
		switch string(labelValue(labels, "kv_cache_block_type")) {
		case "fraction":
			t.add(fieldUsage, v)
		case "tokens_per":
			t.add(fieldBlockSize, v)
		case "max":
			t.add(fieldBlocks, v)
		}
	default:
		t.add(f, v)
	}
}

// fill sets the values from the sums.
func (r *Reading) fill(t *samples) {
	r.Waiting, r.Running = count(t.sum[fieldWaiting]), count(t.sum[fieldRunning])
	r.Loaded = t.n[fieldWaiting] > 0 && t.n[fieldRunning] > 0
	usage := fieldUsage
	if t.n[usage] == 0 {
		usage = fieldUsageOld
	}
	if n := t.n[usage]; n > 0 {
		r.KVUsage = min(1, max(0, t.sum[usage]/float64(n)))
	}
	switch {
	case t.n[fieldTokens] > 0:
		r.CacheTokens = count(t.sum[fieldTokens])
	case t.n[fieldInfoTokens] > 0:
		r.CacheTokens = count(t.sum[fieldInfoTokens])
	case t.n[fieldSharedTokens] > 0:
		r.CacheTokens = count(t.sum[fieldSharedTokens] / float64(t.n[fieldSharedTokens]*(1+t.otherRanks)))
	case t.n[fieldBlocks] > 0 && t.n[fieldBlockSize] > 0:
		r.CacheTokens = count(t.sum[fieldBlocks] * t.sum[fieldBlockSize] / float64(t.n[fieldBlockSize]))
	}
	if r.CacheTokens > maxCache {
		r.CacheTokens = 0 // memory is sized by this figure
	}
	for _, f := range [...]field{fieldInfoBlockSize, fieldBlockSize} {
		if n := t.n[f]; n > 0 && r.BlockTokens == 0 {
			r.BlockTokens = min(count(t.sum[f]/float64(n)), maxBlock)
		}
	}
	r.FirstTokens = t.counter(fieldFirstTokens, fieldFirstTokens)
	r.PromptTokens = t.counter(fieldPromptTokens, fieldPromptTokens)
	r.OutputTokens = t.counter(fieldOutputTokens, fieldOutputTokens)
	r.HitTokens = t.counter(fieldHits, fieldHitsOld)
	r.QueryTokens = t.counter(fieldQueries, fieldQueriesOld)
	r.Finished = t.counter(fieldFinished, fieldFinished)
	if r.Kind == VLLM && r.FirstTokens == 0 && r.Finished == 0 && t.n[fieldWaiting] == 0 && t.n[fieldRunning] == 0 {
		r.Loaded = true // several API servers leave out what has not been set yet
	}
	if t.n[fieldComputed] > 0 && t.n[fieldReused] > 0 {
		r.HitTokens = t.counter(fieldReused, fieldReused)
		r.PromptTokens = t.counter(fieldComputed, fieldComputed) + r.HitTokens
		r.QueryTokens = r.PromptTokens
	}
	if r.Kind == SGLang && r.HitTokens >= 0 {
		r.QueryTokens = r.PromptTokens
	}
}

// counter returns the sum of f or, where that is missing, of old; -1 = neither.
func (t *samples) counter(f, old field) int64 {
	if t.n[f] == 0 {
		f = old
	}
	if t.n[f] == 0 {
		return -1
	}
	return int64(count(t.sum[f]))
}

// count returns v as a count; a negative number or NaN is 0.
func count(v float64) int {
	if !(v > 0) {
		return 0
	}
	return int(min(v, 1<<53))
}

// parseValue parses the value of a sample; rest follows the name and the labels.
func parseValue(rest []byte) (float64, bool) {
	for len(rest) > 0 && (rest[0] == ' ' || rest[0] == '\t') {
		rest = rest[1:]
	}
	end := 0
	for end < len(rest) && rest[end] > ' ' {
		end++
	}
	if end == 0 || end > 32 {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(rest[:end]), 64)
	return v, err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
}
