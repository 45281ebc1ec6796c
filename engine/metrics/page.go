package metrics

import (
	"bytes"
	"math"
	"strconv"
)

// Reading is what one page of metrics tells. Where a page has several engines,
// as with data parallelism, counts are their sum and shares their mean.
type Reading struct {
	Kind Kind

	Waiting, Running int     // requests
	Loaded           bool    // the page tells Waiting and Running
	KVUsage          float64 // used share of the KV cache, 0 to 1
	CacheTokens      int     // size of the KV cache; 0 = not told

	// Counters since the engine's start; -1 = not told.
	FirstTokens  int64 // requests that have had their first token
	PromptTokens int64 // of requests, cached or not
	HitTokens    int64 // of QueryTokens found in the prefix cache
	QueryTokens  int64
	Finished     int64 // requests

	// Adapters are the names of the LoRA adapters in use, separated by commas,
	// a part of the page that was read. MaxLoRA is how many fit; 0 = not told.
	Adapters []byte
	MaxLoRA  int
}

// field is something that a page tells. A page in transition between two
// versions may tell it by two names at once; an older name has a field of its
// own, which counts where the newer one is missing.
type field uint8

const (
	fieldWaiting field = iota
	fieldRunning
	fieldUsage
	fieldOldUsage
	fieldFirstTokens
	fieldPromptTokens
	fieldHits
	fieldOldHits
	fieldQueries
	fieldOldQueries
	fieldFinished
	fieldTokens     // size of the cache in tokens
	fieldInfoTokens // the same, from labels
	fieldBlocks     // the same, in blocks
	fieldBlockSize  // of so many tokens
	fieldCacheInfo  // both of these as labels
	fieldLoRA       // adapters as labels
	fieldOfRequests // Triton's: a label says which
	fieldOfBlocks
	fields
)

// wanted tells which field the sample of that name is, and of which kind of
// engine.
func wanted(name []byte) (field, Kind) {
	switch string(name) {
	case "vllm:num_requests_waiting":
		return fieldWaiting, VLLM
	case "vllm:num_requests_running":
		return fieldRunning, VLLM
	case "vllm:kv_cache_usage_perc":
		return fieldUsage, VLLM
	case "vllm:gpu_cache_usage_perc":
		return fieldOldUsage, VLLM
	case "vllm:time_to_first_token_seconds_count":
		return fieldFirstTokens, VLLM
	case "vllm:prompt_tokens_total":
		return fieldPromptTokens, VLLM
	case "vllm:prefix_cache_hits_total":
		return fieldHits, VLLM
	case "vllm:gpu_prefix_cache_hits_total":
		return fieldOldHits, VLLM
	case "vllm:prefix_cache_queries_total":
		return fieldQueries, VLLM
	case "vllm:gpu_prefix_cache_queries_total":
		return fieldOldQueries, VLLM
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
		return fieldOfRequests, Triton
	case "nv_trt_llm_kv_cache_block_metrics":
		return fieldOfBlocks, Triton

	case "llamacpp:requests_deferred":
		return fieldWaiting, LlamaCpp
	case "llamacpp:requests_processing":
		return fieldRunning, LlamaCpp
	case "llamacpp:kv_cache_usage_ratio":
		return fieldUsage, LlamaCpp
	}
	return fields, Unknown
}

// maxCache is beyond what any engine holds, in tokens.
const maxCache = 100_000_000

// tally sums the samples of each field.
type tally struct {
	sum   [fields]float64
	n     [fields]int
	since float64 // the time of the newest sample about adapters
}

func (t *tally) add(f field, v float64) {
	t.sum[f] += v
	t.n[f]++
}

// Read fills r from a page in Prometheus' text format or OpenMetrics. Lines
// that are not wanted, or not understood, are passed over; a page with none of
// the wanted ones leaves r.Kind Unknown. r.Adapters is part of page. Read does
// not allocate.
func (r *Reading) Read(page []byte) {
	*r = Reading{}
	var t tally
	for len(page) > 0 {
		line := page
		if end := bytes.IndexByte(page, '\n'); end >= 0 {
			line, page = page[:end], page[end+1:]
		} else {
			page = nil
		}
		r.line(line, &t)
	}
	r.sum(&t)
}

// line takes in one line of a page.
func (r *Reading) line(line []byte, t *tally) {
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
	f, kind := wanted(line[:at])
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
	v, ok := value(rest)
	if !ok {
		return
	}
	if rank := label(labels, "tp_rank"); len(rank) > 0 && string(rank) != "0" {
		return // each rank of one engine tells the same
	}
	r.Kind = kind
	switch f {
	case fieldCacheInfo:
		size, blocks := number(labels, "block_size", "page_size"), number(labels, "num_gpu_blocks", "num_pages")
		if size > 0 && blocks > 0 {
			t.add(fieldInfoTokens, size*blocks)
		}
	case fieldLoRA:
		// Each set of adapters that there has been is a sample of its own; its
		// value is the time.
		if v >= t.since {
			t.since = v
			r.Adapters = label(labels, "running_lora_adapters")
			r.MaxLoRA = int(number(labels, "max_lora", ""))
		}
	case fieldOfRequests:
		switch string(label(labels, "request_type")) {
		case "waiting":
			t.add(fieldWaiting, v)
		case "scheduled":
			t.add(fieldRunning, v)
		}
	case fieldOfBlocks:
		switch string(label(labels, "kv_cache_block_type")) {
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

// sum makes the reading of what the samples add up to.
func (r *Reading) sum(t *tally) {
	r.Waiting, r.Running = whole(t.sum[fieldWaiting]), whole(t.sum[fieldRunning])
	r.Loaded = t.n[fieldWaiting] > 0 && t.n[fieldRunning] > 0
	usage := fieldUsage
	if t.n[usage] == 0 {
		usage = fieldOldUsage
	}
	if n := t.n[usage]; n > 0 {
		r.KVUsage = min(1, max(0, t.sum[usage]/float64(n)))
	}
	switch {
	case t.n[fieldTokens] > 0:
		r.CacheTokens = whole(t.sum[fieldTokens])
	case t.n[fieldInfoTokens] > 0:
		r.CacheTokens = whole(t.sum[fieldInfoTokens])
	case t.n[fieldBlocks] > 0 && t.n[fieldBlockSize] > 0:
		r.CacheTokens = whole(t.sum[fieldBlocks] * t.sum[fieldBlockSize] / float64(t.n[fieldBlockSize]))
	}
	if r.CacheTokens > maxCache {
		r.CacheTokens = 0 // memory is kept by this figure: no engine is so large
	}
	r.FirstTokens = t.counter(fieldFirstTokens, fieldFirstTokens)
	r.PromptTokens = t.counter(fieldPromptTokens, fieldPromptTokens)
	r.HitTokens = t.counter(fieldHits, fieldOldHits)
	r.QueryTokens = t.counter(fieldQueries, fieldOldQueries)
	r.Finished = t.counter(fieldFinished, fieldFinished)
	if r.Kind == SGLang && r.HitTokens >= 0 {
		r.QueryTokens = r.PromptTokens
	}
}

func (t *tally) counter(f, old field) int64 {
	if t.n[f] == 0 {
		f = old
	}
	if t.n[f] == 0 {
		return -1
	}
	return int64(whole(t.sum[f]))
}

// whole is v as a count, whatever v is.
func whole(v float64) int {
	if !(v > 0) {
		return 0
	}
	return int(min(v, 1<<53))
}

// value reads the number of a sample, of which rest is what follows name and
// labels.
func value(rest []byte) (float64, bool) {
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

// labelsEnd is the place of the bracket that closes labels, which b begins
// with, or -1.
func labelsEnd(b []byte) int {
	quoted := false
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '}' && !quoted:
			return i
		}
	}
	return -1
}

// label is the value of the label of that name as it is written, nil if there
// is none.
func label(labels []byte, name string) []byte {
	for len(labels) > 0 {
		eq := bytes.IndexByte(labels, '=')
		if eq < 0 || eq+1 >= len(labels) || labels[eq+1] != '"' {
			return nil
		}
		key, rest := bytes.Trim(labels[:eq], ", "), labels[eq+2:]
		end := 0
		for end < len(rest) && rest[end] != '"' {
			if rest[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(rest) {
			return nil
		}
		if string(key) == name {
			return rest[:end:end]
		}
		labels = rest[end+1:]
	}
	return nil
}

// number is the value of the label of either name as a number, 0 if it is none.
func number(labels []byte, name, other string) float64 {
	text := label(labels, name)
	if text == nil && other != "" {
		text = label(labels, other)
	}
	v, _ := value(text)
	return v
}
