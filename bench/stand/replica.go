package stand

import (
	"bufio"
	"bytes"
	"fmt"
	"time"

	"github.com/valyala/fasthttp"
)

const answer = `{"id":"x","object":"chat.completion","created":1,"model":"` + Model + `","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}}`

const models = `{"object":"list","data":[{"id":"` + Model + `","object":"model","created":1,"owned_by":"vllm","root":"` + Model + `","max_model_len":131072}]}`

const metrics = "vllm:num_requests_running{model_name=\"" + Model + "\"} 0\nvllm:num_requests_waiting{model_name=\"" + Model + "\"} 0\n"

const chunk = `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"` + Model + `","choices":[{"index":0,"delta":{"content":"ok "},"finish_reason":null}]}` + "\n\n"

// The number of chunks of a stream, and the time between two.
const (
	Chunks   = 100
	ChunkGap = 2 * time.Millisecond
)

// ServeReplicas answers on n loopback addresses, with the port of listen: each request
// after delay, streams chunk by chunk. It returns only with an error.
func ServeReplicas(n int, listen string, delay time.Duration) error {
	s := fasthttp.Server{
		MaxRequestBodySize: 64 << 20, NoDefaultServerHeader: true,
		Handler: func(ctx *fasthttp.RequestCtx) { replica(ctx, delay) },
	}
	failed := make(chan error, n)
	for i := range n {
		go func() { failed <- s.ListenAndServe(Loopback(i, listen)) }()
	}
	return <-failed
}

func replica(ctx *fasthttp.RequestCtx, delay time.Duration) {
	ctx.SetContentType("application/json")
	switch path := string(ctx.Path()); {
	case ctx.IsPost():
	case path == "/health":
		return
	case path == "/v1/models":
		ctx.SetBodyString(models)
		return
	case path == "/metrics":
		ctx.SetContentType("text/plain; version=0.0.4")
		ctx.SetBodyString(metrics)
		return
	default:
		ctx.SetStatusCode(fasthttp.StatusNotFound)
		ctx.SetBodyString(`{"error":{"message":"not found","code":404}}`)
		return
	}
	if delay > 0 {
		time.Sleep(delay)
	}
	if !streamed(ctx.PostBody()) {
		ctx.SetBodyString(answer)
		return
	}
	ctx.SetContentType("text/event-stream")
	ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
		for i := range Chunks {
			if i > 0 {
				time.Sleep(ChunkGap)
			}
			fmt.Fprint(w, chunk)
			if w.Flush() != nil {
				return // the client has gone
			}
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
}

// streamed reports whether a body asks for a stream; it looks at small bodies only. Routers
// may have rewritten the body.
func streamed(body []byte) bool {
	return len(body) < 8<<10 && (bytes.Contains(body, []byte(`"stream":true`)) || bytes.Contains(body, []byte(`"stream": true`)))
}
