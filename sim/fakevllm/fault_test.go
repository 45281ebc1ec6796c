package fakevllm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestFaults(t *testing.T) {
	r := start(t, Options{})
	chat := `{"stream":true,"max_tokens":5,` + hello + `}`
	const path = "/v1/chat/completions"
	if resp, out := r.do("POST", path, chat, "X-Fake-Status", "503"); resp.StatusCode != 503 || !strings.Contains(out, `"type":"ServiceUnavailable","param":null,"code":503`) {
		t.Errorf("status: %d %s", resp.StatusCode, out)
	}
	begin := time.Now()
	if resp, _ := r.do("POST", path, chat, "X-Fake-Delay", "30ms"); resp.StatusCode != 200 || time.Since(begin) < 30*time.Millisecond {
		t.Errorf("delay: %d after %v", resp.StatusCode, time.Since(begin))
	}
	// The transport retries only on a connection that was used before.
	r.client.Transport.(*http.Transport).DisableKeepAlives = true
	if _, err := r.send(t.Context(), "POST", path, chat, "X-Fake-Die", "0"); err == nil {
		t.Error("answered despite the fault")
	}
	for n := 1; n <= 6; n++ {
		resp, err := r.send(t.Context(), "POST", path, chat, "X-Fake-Die", strconv.Itoa(n))
		if err != nil {
			t.Fatal(err)
		}
		out, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		// A reset may overtake what was sent before it.
		if got := bytes.Count(out, []byte("\n\n")); err == nil || got > n {
			t.Errorf("died after %d chunks: %d came, %v", n, got, err)
		}
	}
	resp, err := r.send(t.Context(), "POST", path, `{`+hello+`}`, "X-Fake-Die", "1")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := io.ReadAll(resp.Body); err == nil || int64(len(out)) >= resp.ContentLength {
		t.Errorf("died in a whole answer: %d bytes, %v", len(out), err)
	}
	resp.Body.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := r.send(ctx, "POST", path, chat, "X-Fake-Hang", "1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hang: %v", err)
	}
}

func TestReplicaFaults(t *testing.T) {
	r := start(t, Options{})
	status := func(path string) int {
		resp, _ := r.do("GET", path, "")
		return resp.StatusCode
	}
	ask := func() int {
		resp, _ := r.do("POST", "/v1/completions", `{"model":"m","prompt":"a","max_tokens":1}`)
		return resp.StatusCode
	}
	fail := func(body string) {
		t.Helper()
		if code, out := r.post("/fake/fail", body); code != 200 {
			t.Fatalf("%d %s", code, out)
		}
	}
	fail(`{"status":500,"count":2}`)
	if got := []int{ask(), status("/health"), status("/v1/models"), ask(), ask()}; !slices.Equal(got, []int{500, 200, 200, 500, 200}) {
		t.Errorf("two failures: %v", got)
	}
	fail(`{"status":503,"path":"/","delay":"1ms"}`)
	if got := []int{status("/v1/models"), status("/health")}; !slices.Equal(got, []int{503, 503}) {
		t.Errorf("all failing: %v", got)
	}
	if resp, _ := r.do("GET", "/health", "", "X-Fake-Delay", "1ms"); resp.StatusCode != 200 {
		t.Errorf("a fault in the request does not override the replica's: %d", resp.StatusCode)
	}
	r.post("/fake/reset", "")
	if got := status("/health"); got != 200 {
		t.Errorf("after reset: %d", got)
	}
	fail(`{"status":500,"for":"5ms"}`)
	r.eventually("over", func() bool { return ask() == 200 })
	r.client.Transport.(*http.Transport).DisableKeepAlives = true
	fail(`{"die_after":0,"path":"/health"}`)
	if _, err := r.send(t.Context(), "GET", "/health", ""); err == nil {
		t.Error("answered despite the fault")
	}
	fail(`{"hang":true,"path":"/metrics"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := r.send(ctx, "GET", "/metrics", ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hang: %v", err)
	}
}

// A request that is not answered yet is one that the engine has.
func TestHeldRequestsRun(t *testing.T) {
	r := start(t, Options{})
	running := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			_, page := r.do("GET", "/metrics", "")
			if strings.Contains(page, `vllm:num_requests_running{engine="0",model_name="m"} `+want+"\n") {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("not %s running:\n%s", want, page)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := r.send(ctx, "POST", "/v1/chat/completions", `{`+hello+`}`, "X-Fake-Hang", "1"); err == nil {
			t.Error("answered")
		}
	}()
	running("1")
	cancel()
	<-done
	running("0")
}
