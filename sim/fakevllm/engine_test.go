package fakevllm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"pointsman/sim"
)

// TestCancel: a client that disconnects frees the engine at any stage.
func TestCancel(t *testing.T) {
	r := start(t, Options{Speed: 1, Profile: sim.Profile70B})
	aborts := `vllm:request_success_total{engine="0",model_name="m",finished_reason="abort"}`
	long := `{"stream":%v,"max_tokens":100000,"ignore_eos":true,` + hello + `}`
	for i, stream := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			resp, err := r.send(ctx, "POST", "/v1/chat/completions", fmt.Sprintf(long, stream))
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			done <- err
		}()
		r.eventually("runs", func() bool { return r.metric("vllm:num_requests_running") == 1 })
		r.eventually("has a token", func() bool { return r.metric("vllm:time_to_first_token_seconds_count") == float64(i+1) })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		r.eventually("is counted", func() bool { return r.metric(aborts) == float64(i+1) })
		r.eventually("is gone", func() bool {
			return r.metric("vllm:num_requests_running") == 0 && r.metric("vllm:kv_cache_usage_perc") == 0
		})
	}
}

// TestCloseInFlight: Close aborts requests in flight.
func TestCloseInFlight(t *testing.T) {
	r := start(t, Options{Speed: 1})
	resp, err := r.send(t.Context(), "POST", "/v1/completions", `{"prompt":"x","stream":true,"max_tokens":100000,"ignore_eos":true}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r.Close()
	r.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a stream ended without an error on a closed engine")
	}
}

func TestMetrics(t *testing.T) {
	r := start(t, Options{LoRA: []string{"sql", "law"}, Speed: 1, CacheTokens: 64_000, Profile: sim.Profile70B})
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	clients.Go(func() {
		resp, err := r.send(ctx, "POST", "/v1/completions", `{"model":"sql","prompt":"x","stream":true,"max_tokens":60000,"ignore_eos":true}`)
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
	r.answer("/v1/completions", `{"prompt":"abcdefgh","max_tokens":3}`)
	r.eventually("runs", func() bool {
		return r.metric(`vllm:lora_requests_info{max_lora="2",running_lora_adapters="sql",waiting_lora_adapters=""}`) > 1e9
	})
	r.eventually("has a token", func() bool { return r.metric("vllm:time_to_first_token_seconds_count") == 2 })
	base := `{engine="0",model_name="m"`
	for name, want := range map[string]float64{
		"vllm:num_requests_running" + base + "}":                           1,
		"vllm:num_requests_waiting" + base + "}":                           0,
		"vllm:prompt_tokens_total" + base + "}":                            3,
		"vllm:prefix_cache_queries_total" + base + "}":                     3,
		"vllm:prefix_cache_hits_total" + base + "}":                        0,
		"vllm:num_preemptions_total" + base + "}":                          0,
		"vllm:request_success_total" + base + `,finished_reason="length"}`: 1,
		"vllm:request_success_total" + base + `,finished_reason="stop"}`:   0,
		"vllm:request_success_total" + base + `,finished_reason="abort"}`:  0,
		"vllm:time_to_first_token_seconds_bucket" + base + `,le="+Inf"}`:   2,
		"vllm:time_to_first_token_seconds_bucket" + base + `,le="0.001"}`:  0,
		"vllm:e2e_request_latency_seconds_count" + base + "}":              1,
		`vllm:cache_config_info{engine="0",block_size="16",cache_dtype="auto",enable_prefix_caching="True",kv_cache_size_tokens="64000",num_gpu_blocks="4000"}`: 1,
	} {
		if got := r.metric(name); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{"vllm:kv_cache_usage_perc", "vllm:generation_tokens_total", "vllm:inter_token_latency_seconds_count", "vllm:time_to_first_token_seconds_sum"} {
		if got := r.metric(name + base); got <= 0 {
			t.Errorf("%s = %v, want more than 0", name, got)
		}
	}
	_, page := r.do("GET", "/metrics", "")
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "# HELP vllm:") && !strings.HasPrefix(line, "# TYPE vllm:") && !strings.HasPrefix(line, "vllm:") {
			t.Errorf("line %q", line)
		}
	}
}

// TestRealTime: no answer is faster than the profile and the speed allow.
func TestRealTime(t *testing.T) {
	for _, speed := range []float64{1, 10} {
		r := start(t, Options{Speed: speed, Profile: sim.Profile70B})
		begin := time.Now()
		r.answer("/v1/completions", `{"prompt":"x","max_tokens":11}`)
		if took, model := time.Since(begin), time.Duration(11*float64(sim.Profile70B.Base)/speed); took < model {
			t.Errorf("speed %v: took %v, less than %v", speed, took, model)
		}
	}
}
