//go:build !race

// The race detector makes a sync.Pool forget at random what it was given.

package nginx

import (
	"bytes"
	"testing"

	"github.com/valyala/fasthttp"

	"pointsman/decider"
)

// Reading, deciding and answering take no memory once everything has its size.
func TestNoAllocation(t *testing.T) {
	a := ask(t, Options{})
	var ctx fasthttp.RequestCtx
	body := bytes.NewReader([]byte(chat))
	id := []byte(rid)
	question := func() {
		ctx.Request.Reset()
		ctx.Response.Reset()
		body.Seek(0, 0)
		h := &ctx.Request.Header
		h.SetMethod("POST")
		h.SetRequestURI("/v1/chat/completions")
		h.SetBytesV("X-Pointsman-Id", id)
		h.Set("X-Pointsman-Target", "@pm_target")
		ctx.Request.SetBodyStream(body, len(chat))
		a.handle(&ctx)
	}
	ended := func() {
		a.d.Pool("llama").Finished(decider.Outcome{ID: decider.ParseID(id)})
	}
	for range 2000 { // the records, the tombstones and the pools' slabs fill
		question()
		ended()
	}
	if n := testing.AllocsPerRun(1000, func() { question(); ended() }); n > 0 {
		t.Errorf("%v allocations a question", n)
	}
	if len(ctx.Response.Header.Peek("X-Pointsman-Server")) == 0 {
		t.Error("nothing was decided")
	}
}
