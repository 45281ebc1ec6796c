package metrics

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
)

// reading returns a Reading in which the counters are not reported, changed.
func reading(change func(*Reading)) Reading {
	r := Reading{FirstTokens: -1, PromptTokens: -1, HitTokens: -1, QueryTokens: -1, OutputTokens: -1, Finished: -1}
	change(&r)
	return r
}

var pages = []struct {
	name, text string
	want       Reading
}{
	{"vllm", `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta-llama/Llama-3.1-8B"} 7.0
vllm:num_requests_waiting{engine="0",model_name="meta-llama/Llama-3.1-8B"} 3.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1e+06
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 250000.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.000001e+06
vllm:generation_tokens_total{engine="0",model_name="m"} 4321.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 11.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="m"} 0.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 22.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 9.5
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="31250",sliding_window="None"} 1.0
vllm:lora_requests_info{max_lora="4",running_lora_adapters="old",waiting_lora_adapters=""} 1.70000001e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a,b",waiting_lora_adapters="c"} 1.70000009e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="older",waiting_lora_adapters=""} 1.7e+09
`, reading(func(r *Reading) {
		r.Kind, r.Loaded = VLLM, true
		r.Running, r.Waiting, r.KVUsage, r.CacheTokens, r.BlockTokens = 7, 3, .25, 500_000, 16
		r.QueryTokens, r.HitTokens, r.PromptTokens, r.Finished, r.FirstTokens = 1_000_000, 250_000, 1_000_001, 15, 22
		r.Adapters, r.MaxLoRA, r.OutputTokens = []byte("a,b"), 4, 4321
	})},
	{"vllm of two ranks", `vllm:num_requests_running{engine="0"} 7
vllm:num_requests_running{engine="1"} 5
vllm:num_requests_waiting{engine="0"} 0
vllm:num_requests_waiting{engine="1"} 1
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="100"} 1.0
`, reading(func(r *Reading) {
		r.Kind, r.Loaded, r.Running, r.Waiting, r.KVUsage, r.CacheTokens, r.BlockTokens = VLLM, true, 12, 1, .5, 1600, 16 // num_gpu_blocks are of both
	})},
	{"vllm with several API servers", `vllm:lora_requests_info{max_lora="2",running_lora_adapters="",waiting_lora_adapters=""} 3.4000001e+09
vllm:lora_requests_info{max_lora="2",running_lora_adapters="a",waiting_lora_adapters=""} 1.70000009e+09
vllm:lora_requests_info{max_lora="2",running_lora_adapters="b",waiting_lora_adapters=""} 3.4e+09
`, reading(func(r *Reading) { r.Kind, r.Adapters, r.MaxLoRA = VLLM, []byte("a"), 2 })},
	{"vllm before its first request, with several API servers", `vllm:request_success_total{engine="0",finished_reason="stop"} 0
vllm:time_to_first_token_seconds_count{engine="0"} 0
`, reading(func(r *Reading) { r.Kind, r.Loaded, r.Finished, r.FirstTokens = VLLM, true, 0, 0 })},
	{"an old vllm", `vllm:num_requests_running{model_name="m"} 1.0
vllm:num_requests_swapped{model_name="m"} 9.0
vllm:num_requests_waiting{model_name="m"} 2.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:gpu_prefix_cache_queries_total{model_name="m"} 10.0
vllm:gpu_prefix_cache_hits_total{model_name="m"} 5.0
vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0
`, reading(func(r *Reading) {
		r.Kind, r.Loaded, r.Running, r.Waiting, r.KVUsage, r.BlockTokens, r.QueryTokens, r.HitTokens = VLLM, true, 1, 2, .5, 16, 10, 5
	})},
	{"vllm in transition", `vllm:kv_cache_usage_perc{model_name="m"} 0.5
vllm:gpu_cache_usage_perc{model_name="m"} 0.9
vllm:prefix_cache_queries_total{model_name="m"} 10.0
vllm:gpu_prefix_cache_queries_total{model_name="m"} 20.0
`, reading(func(r *Reading) { r.Kind, r.KVUsage, r.QueryTokens = VLLM, .5, 10 })},
	{"sglang", `sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0"} 7.0
sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="1"} 7.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",tp_rank="0"} 1.0
sglang:token_usage{model_name="m"} 0.28
sglang:max_total_num_tokens{model_name="m"} 161721.0
sglang:cache_config_info{num_pages="161721",page_size="1"} 1.0
sglang:prompt_tokens_total{model_name="m"} 8.128902e+06
sglang:cached_tokens_total{model_name="m"} 1000.0
sglang:generation_tokens_total{model_name="m"} 77
sglang:num_requests_total{model_name="m"} 12.0
sglang:time_to_first_token_seconds_count{model_name="m"} 13.0
`, reading(func(r *Reading) {
		r.Kind, r.Loaded, r.Running, r.Waiting, r.KVUsage, r.CacheTokens, r.BlockTokens = SGLang, true, 7, 1, .28, 161721, 1
		r.PromptTokens, r.QueryTokens, r.HitTokens, r.Finished, r.FirstTokens, r.OutputTokens = 8128902, 8128902, 1000, 12, 13, 77
	})},
	{"sglang of pages", `sglang:page_size{model_name="m"} 64
sglang:num_pages{model_name="m"} 100
`, reading(func(r *Reading) { r.Kind, r.CacheTokens, r.BlockTokens = SGLang, 6400, 64 })},
	{"trtllm", `trtllm_num_requests_running{engine_type="trtllm",model_name="m"} 7.0
trtllm_num_requests_waiting{engine_type="trtllm",model_name="m"} 2.0
trtllm_kv_cache_utilization{model_name="m"} 0.75
trtllm_kv_cache_tokens_per_block{model_name="m"} 32
trtllm_kv_cache_max_blocks{model_name="m"} 1000
trtllm_time_to_first_token_seconds_count{model_name="m"} 5
trtllm_request_success_total{finished_reason="stop",model_name="m"} 4
`, reading(func(r *Reading) {
		r.Kind, r.Loaded, r.Running, r.Waiting, r.KVUsage, r.CacheTokens, r.BlockTokens, r.FirstTokens, r.Finished = TensorRT, true, 7, 2, .75, 32000, 32, 5, 4
	})},
	{"triton", `nv_inference_request_success{model="m",version="1"} 100
nv_trt_llm_request_metrics{model="m",request_type="scheduled",version="1"} 4
nv_trt_llm_request_metrics{model="m",request_type="max",version="1"} 512
nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 3
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="m"} 0.5
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="m"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="m"} 6239
`, reading(func(r *Reading) {
		r.Kind, r.Loaded, r.Running, r.Waiting, r.KVUsage, r.CacheTokens, r.BlockTokens = Triton, true, 4, 3, .5, 64*6239, 64
	})},
	{"llamacpp", `# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 3
llamacpp:requests_deferred 1
llamacpp:kv_cache_usage_ratio 0.125
llamacpp:prompt_tokens_total 900
`, reading(func(r *Reading) {
		r.Kind, r.Loaded, r.Running, r.Waiting, r.KVUsage = LlamaCpp, true, 3, 1, .125
	})},
	{"llamacpp that counts what it reuses", `llamacpp:prompt_tokens_total 900
llamacpp:prompt_tokens_cached_total 100
llamacpp:requests_processing 3
llamacpp:requests_deferred 1
`, reading(func(r *Reading) {
		r.Kind, r.Loaded, r.Running, r.Waiting, r.PromptTokens, r.QueryTokens, r.HitTokens = LlamaCpp, true, 3, 1, 1000, 1000, 100
	})},
	{"a hybrid model", `vllm:cache_config_info{block_size="16",kv_cache_size_tokens="70000",num_gpu_blocks="10000"} 1
`, reading(func(r *Reading) { r.Kind, r.CacheTokens, r.BlockTokens = VLLM, 70_000, 16 })},
	{"something else", "go_goroutines 12\nprocess_cpu_seconds_total 3\n", reading(func(*Reading) {})},
	{"unusual but valid", "vllm:num_requests_running{a=\"x}\\\"y{\",b=\"\" , c=\"1\"}\t 4  1700000000000\r\nvllm:num_requests_waiting 2",
		reading(func(r *Reading) { r.Kind, r.Loaded, r.Running, r.Waiting = VLLM, true, 4, 2 })},
	{"malformed lines", "vllm:num_requests_running{a=\"x 4\nvllm:num_requests_running\nvllm:num_requests_running{}\nvllm:num_requests_running NaN\nvllm:num_requests_waiting{} +Inf\nvllm:num_requests_waiting{} 0x\nv\n\n",
		reading(func(*Reading) {})},
	{"out of bounds", "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1e9\"} 1\nvllm:num_requests_running -3\nvllm:num_requests_waiting 1e300\nvllm:kv_cache_usage_perc 7\n",
		reading(func(r *Reading) { r.Kind, r.Loaded, r.Waiting, r.KVUsage, r.BlockTokens = VLLM, true, 1<<53, 1, 16 })},
}

func TestReadsPages(t *testing.T) {
	for _, p := range pages {
		var r Reading
		r.Read([]byte(p.text))
		if got, want := fmt.Sprintf("%+v", r), fmt.Sprintf("%+v", p.want); got != want {
			t.Errorf("%s:\n got %s\nwant %s", p.name, got, want)
		}
	}
}

// A rank of an engine has its own samples, its share of the blocks, and what is not of
// any rank, but for the adapters: nobody knows on which ranks they are in use.
func TestReadsOneRank(t *testing.T) {
	page := []byte(`vllm:num_requests_running{engine="0"} 7
vllm:num_requests_running{engine="1"} 5
vllm:num_requests_waiting{engine="0"} 0
vllm:num_requests_waiting{engine="1"} 1
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="100"} 1.0
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a",waiting_lora_adapters=""} 1.70000001e+09
`)
	for rank, want := range map[int]Reading{
		0: reading(func(r *Reading) {
			r.Kind, r.Loaded, r.Running, r.CacheTokens, r.BlockTokens, r.MaxLoRA = VLLM, true, 7, 800, 16, 4
		}),
		1: reading(func(r *Reading) {
			r.Kind, r.Loaded, r.Running, r.Waiting, r.CacheTokens, r.BlockTokens, r.MaxLoRA = VLLM, true, 5, 1, 800, 16, 4
		}),
		2: reading(func(r *Reading) { r.Kind, r.MaxLoRA = VLLM, 4 }),
	} {
		var r Reading
		if r.ReadRank(page, rank); fmt.Sprintf("%+v", r) != fmt.Sprintf("%+v", want) {
			t.Errorf("rank %d:\n got %+v\nwant %+v", rank, r, want)
		}
	}
	var r Reading
	if r.ReadRank([]byte("sglang:num_running_reqs{dp_rank=\"0\"} 3\nsglang:num_running_reqs{dp_rank=\"1\"} 4\nsglang:num_queue_reqs 0\n"), 1); r.Running != 4 {
		t.Errorf("SGLang: %+v", r)
	}
	// Rank 0 has had no request yet.
	if r.ReadRank([]byte("sglang:num_running_reqs{dp_rank=\"1\"} 4\nsglang:num_queue_reqs{dp_rank=\"1\"} 0\n"), 0); r.Running != 0 {
		t.Errorf("SGLang: %+v", r)
	}
}

// The pages of real engines, as they sent them.
func TestReadsRealPages(t *testing.T) {
	for name, want := range map[string]Reading{
		// Two ranks and two API servers.
		"vllm-0.32.0-ranks-fresh": reading(func(r *Reading) {
			r.Kind, r.Loaded, r.CacheTokens, r.BlockTokens, r.FirstTokens, r.Finished = VLLM, true, 51200, 32, 0, 0
			r.PromptTokens, r.QueryTokens, r.HitTokens, r.OutputTokens = 0, 0, 0, 0
		}),
		"vllm-0.32.0-ranks-fresh 1": reading(func(r *Reading) {
			r.Kind, r.Loaded, r.CacheTokens, r.BlockTokens, r.FirstTokens, r.Finished = VLLM, true, 25600, 32, 0, 0
			r.PromptTokens, r.QueryTokens, r.HitTokens, r.OutputTokens = 0, 0, 0, 0
		}),
		"vllm-0.32.0-ranks": reading(func(r *Reading) {
			r.Kind, r.Loaded, r.Running, r.CacheTokens, r.BlockTokens, r.FirstTokens, r.Finished = VLLM, true, 1, 51200, 32, 18, 17
			r.KVUsage, r.PromptTokens, r.QueryTokens, r.HitTokens, r.OutputTokens, r.Adapters, r.MaxLoRA = 0.0025031289111389077/2, 1528, 1528, 448, 78, []byte{}, 2
		}),
		"vllm-0.32.0-ranks 0": reading(func(r *Reading) {
			r.Kind, r.Loaded, r.CacheTokens, r.BlockTokens, r.FirstTokens, r.Finished = VLLM, true, 25600, 32, 6, 6
			r.PromptTokens, r.QueryTokens, r.HitTokens, r.OutputTokens, r.MaxLoRA = 740, 740, 224, 11, 2
		}),
		"vllm-0.32.0-ranks 1": reading(func(r *Reading) {
			r.Kind, r.Loaded, r.Running, r.CacheTokens, r.BlockTokens, r.FirstTokens, r.Finished = VLLM, true, 1, 25600, 32, 12, 11
			r.KVUsage, r.PromptTokens, r.QueryTokens, r.HitTokens, r.OutputTokens, r.MaxLoRA = 0.0025031289111389077, 788, 788, 224, 67, 2
		}),
		// The ranks 2 and 3 of 4, in the second of two servers.
		"vllm-0.32.0-hybrid 1": reading(func(r *Reading) {
			r.Kind, r.Loaded, r.CacheTokens, r.BlockTokens, r.FirstTokens, r.Finished = VLLM, true, 25600, 32, 1, 1
			r.PromptTokens, r.QueryTokens, r.HitTokens, r.OutputTokens = 233, 233, 0, 2
		}),
		"vllm-0.32.0-hybrid 2": reading(func(r *Reading) { r.Kind = Unknown }),
		"vllm-0.32.0": reading(func(r *Reading) {
			r.Kind, r.Loaded, r.CacheTokens, r.BlockTokens, r.FirstTokens, r.Finished = VLLM, true, 25600, 32, 149, 147
			r.PromptTokens, r.QueryTokens, r.HitTokens, r.OutputTokens = 173991, 173991, 27360, 6867
		}),
		"llamacpp-0.7.0": reading(func(r *Reading) {
			r.Kind, r.Loaded, r.PromptTokens, r.QueryTokens, r.HitTokens, r.OutputTokens = LlamaCpp, true, 274+513, 274+513, 513, 398
		}),
		"llm-d-sim": reading(func(r *Reading) {
			r.Kind, r.Loaded, r.CacheTokens, r.BlockTokens, r.FirstTokens, r.Finished = VLLM, true, 6400, 16, 72, 72
			r.PromptTokens, r.QueryTokens, r.HitTokens, r.Adapters, r.MaxLoRA, r.OutputTokens = 26889, 26889, 20272, []byte("sql"), 2, 1007
		}),
	} {
		file, number, _ := strings.Cut(name, " ")
		f, err := os.Open("testdata/" + file + ".txt.gz")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		rank, err := strconv.Atoi(cmp.Or(number, "-1"))
		if err != nil {
			t.Fatal(err)
		}
		var r Reading
		if r.ReadRank(page, rank); fmt.Sprintf("%+v", r) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, r, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, p := range pages {
		f.Add([]byte(p.text))
	}
	f.Fuzz(func(t *testing.T, page []byte) {
		before := bytes.Clone(page)
		var r, again Reading
		r.Read(page)
		if !bytes.Equal(before, page) {
			t.Fatal("the page was changed")
		}
		// An unknown line at the end changes nothing.
		again.Read(append(bytes.Clone(page), "\nnothing_known 1\n"...))
		if fmt.Sprintf("%+v", r) != fmt.Sprintf("%+v", again) {
			t.Fatalf("%+v\n%+v", r, again)
		}
		again.ReadRank(page, 1)
		if again.Waiting < 0 || again.CacheTokens < 0 || again.CacheTokens > maxCache {
			t.Fatalf("rank 1: %+v", again)
		}
		if r.KVUsage < 0 || r.KVUsage > 1 || r.Waiting < 0 || r.Running < 0 || r.CacheTokens < 0 {
			t.Fatalf("%+v", r)
		}
	})
}

// largePage is as long as a page of vLLM: many histograms of several engines.
func largePage(engines int) []byte {
	var b strings.Builder
	for e := range engines {
		for h := range 12 {
			fmt.Fprintf(&b, "# HELP vllm:some_histogram_%d_seconds Histogram of something in seconds.\n# TYPE vllm:some_histogram_%d_seconds histogram\n", h, h)
			for le := range 20 {
				fmt.Fprintf(&b, "vllm:some_histogram_%d_seconds_bucket{engine=\"%d\",le=\"%d.0\",model_name=\"meta-llama/Llama-3.1-8B-Instruct\"} 123456.0\n", h, e, le)
			}
		}
		b.WriteString(pages[0].text)
	}
	return []byte(b.String())
}

func TestReadDoesNotAllocate(t *testing.T) {
	page := largePage(8)
	var r Reading
	if n := testing.AllocsPerRun(20, func() { r.Read(page); r.ReadRank(page, 0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRead(b *testing.B) {
	page := largePage(8)
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	var r Reading
	for b.Loop() {
		r.Read(page)
	}
	if os.Getenv("POINTSMAN_VERBOSE") != "" {
		b.Logf("%d bytes, %+v", len(page), r)
	}
}
