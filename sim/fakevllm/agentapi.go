package fakevllm

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/bytedance/sonic"
)

// The APIs of coding agents: OpenAI's Responses and Anthropic's Messages. Both have one
// choice and event forms of their own.
var (
	responsesDialect = &dialect{chat: true, prefix: "resp_"}
	messagesDialect  = &dialect{chat: true, prefix: "msg_"}
)

// responses serves POST /v1/responses.
func (s *Server) responses(x *exchange) { s.agentAPI(x, responsesDialect, (*wireRequest).ofResponses) }

// messages serves POST /v1/messages.
func (s *Server) messages(x *exchange) {
	s.agentAPI(x, messagesDialect, func(r *wireRequest) *apiError {
		if r.MaxTokens == nil {
			return missing("max_tokens")
		}
		return r.ofMessages()
	})
}

// readAgent reads a request of either API, whose messages convert makes.
func readAgent(body []byte, convert func(*wireRequest) *apiError) (*wireRequest, []uint32, *apiError) {
	r := new(wireRequest)
	if err := decode(body, (*agentRequest)(r)); err != nil {
		return r, nil, badRequest("JSON decode error: %v", err)
	}
	refused := convert(r)
	if refused != nil {
		return r, nil, refused
	}
	r.N, r.StreamOptions = nil, nil
	tokens, refused := r.chatTokens()
	return r, tokens, refused
}

// tokensOf serves a call that returns the tokens of a body of either API.
func tokensOf(s *Server, x *exchange, convert func(*wireRequest) *apiError, answer func([]uint32) any) {
	r, tokens, refused := readAgent(x.body, convert)
	if refused == nil {
		_, _, refused = s.modelOf(r)
	}
	if refused != nil {
		x.fail(refused)
		return
	}
	x.json(http.StatusOK, answer(tokens))
}

func tokenIDs(tokens []uint32) any { return object{"token_ids": tokens} }

// renderMessages serves POST /v1/messages/render.
func renderMessages(s *Server, x *exchange) { tokensOf(s, x, (*wireRequest).ofMessages, tokenIDs) }

// renderResponses serves POST /v1/responses/render.
func renderResponses(s *Server, x *exchange) { tokensOf(s, x, (*wireRequest).ofResponses, tokenIDs) }

// countMessages serves POST /v1/messages/count_tokens.
func countMessages(s *Server, x *exchange) {
	tokensOf(s, x, (*wireRequest).ofMessages, func(tokens []uint32) any { return object{"input_tokens": len(tokens)} })
}

// agentAPI answers a request of either API, whose messages convert makes.
func (s *Server) agentAPI(x *exchange, d *dialect, convert func(*wireRequest) *apiError) {
	r, tokens, refused := readAgent(x.body, convert)
	var g *generation
	if refused == nil {
		g, refused = s.newGeneration(r, d, [][]uint32{tokens})
	}
	if refused == nil {
		if err := x.engine.submit(g.call); err != nil {
			refused = badRequest("%v", err)
		}
	}
	if refused != nil {
		x.fail(refused)
		return
	}
	defer func() {
		if !g.done.Load() {
			x.engine.cancel(g.call)
		}
	}()
	e := &agentStream{Server: s, x: x, g: g}
	if g.stream {
		e.run()
		return
	}
	for !g.done.Load() {
		if !s.wait(x, g) {
			x.fail(coreDead)
			return
		}
	}
	q := g.seqs[0]
	x.json(http.StatusOK, e.whole(string(s.answer(g.seeds[0], q.Output)), "completed"))
}

// agentRequest is a wireRequest as these APIs send it: messages and tools are decoded
// by ofMessages and ofResponses.
type agentRequest wireRequest

// UnmarshalJSON decodes the messages as items.
func (r *agentRequest) UnmarshalJSON(b []byte) error {
	var own struct {
		Messages []agentItem `json:"messages"`
	}
	var fields map[string]json.RawMessage
	if err := decode(b, &fields); err != nil {
		return err
	}
	if raw, ok := fields["messages"]; ok {
		if err := decode(raw, &own.Messages); err != nil {
			return err
		}
		delete(fields, "messages")
	}
	rest, err := sonic.Marshal(fields)
	if err != nil {
		return err
	}
	if err := decode(rest, (*wireRequest)(r)); err != nil {
		return err
	}
	r.Items = own.Messages
	return nil
}

// agentStream sends an answer in the events of its API.
type agentStream struct {
	*Server
	x   *exchange
	g   *generation
	n   int // events so far
	buf []byte
}

// object is a JSON object.
type object = map[string]any

// run streams the answer.
func (e *agentStream) run() {
	h := e.x.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	e.x.w.WriteHeader(http.StatusOK)
	e.x.flush()
	isMessages := e.x.messages
	if isMessages {
		start := e.whole("", "").(object)
		start["content"], start["stop_reason"] = []any{}, nil
		e.event("message_start", object{"message": start})
		e.event("content_block_start", object{"index": 0, "content_block": object{"type": "text", "text": ""}})
	} else {
		e.event("response.created", object{"response": e.whole("", "in_progress")})
		e.event("response.output_item.added", object{"output_index": 0, "item": e.item("", "in_progress")})
		e.event("response.content_part.added", object{"output_index": 0, "content_index": 0, "item_id": e.g.id, "part": object{"type": "output_text", "text": ""}})
	}
	e.send()
	q, sent := e.g.seqs[0], 0
	var text []byte
	for more := true; more; {
		if !e.wait(e.x, e.g) {
			e.died()
			return
		}
		more = !e.g.done.Load()
		for n := int(q.produced.Load()); sent < n; sent++ {
			var space [64]byte
			piece := e.appendToken(space[:0], e.g.seeds[0], sent)
			text = append(text, piece...)
			if isMessages {
				e.event("content_block_delta", object{"index": 0, "delta": object{"type": "text_delta", "text": string(piece)}})
			} else {
				e.event("response.output_text.delta", object{"output_index": 0, "content_index": 0, "item_id": e.g.id, "delta": string(piece)})
			}
		}
		e.send()
	}
	if isMessages {
		e.event("content_block_stop", object{"index": 0})
		e.event("message_delta", object{"delta": object{"stop_reason": e.stopReason()}, "usage": e.usage()})
		e.event("message_stop", object{})
	} else {
		e.event("response.output_text.done", object{"output_index": 0, "content_index": 0, "item_id": e.g.id, "text": string(text)})
		e.event("response.output_item.done", object{"output_index": 0, "item": e.item(string(text), "completed")})
		e.event("response.completed", object{"response": e.whole(string(text), "completed")})
	}
	e.send()
}

// died ends the stream of an engine whose core has died.
func (e *agentStream) died() {
	if e.x.messages {
		e.event("error", object{"error": object{"type": "api_error", "message": coreDead.message}})
	} else {
		e.event("error", object{"code": "server_error", "message": coreDead.message})
	}
	e.send()
}

// event appends an event.
func (e *agentStream) event(kind string, fields object) {
	fields["type"] = kind
	if !e.x.messages {
		fields["sequence_number"] = e.n
	}
	e.n++
	data, err := sonic.Marshal(fields)
	if err != nil {
		panic(err) // our own values always marshal
	}
	e.buf = fmt.Appendf(e.buf, "event: %s\ndata: %s\n\n", kind, data)
	e.x.chunks++
	if e.x.chunks == e.x.fault.abortAfter {
		e.send()
		e.x.abort()
	}
}

// send sends the buffer to the client.
func (e *agentStream) send() {
	if _, err := e.x.w.Write(e.buf); err != nil {
		panic(http.ErrAbortHandler)
	}
	e.buf = e.buf[:0]
	e.x.flush()
}

func (e *agentStream) stopReason() string {
	if e.g.seqs[0].finish == "length" {
		return "max_tokens"
	}
	return "end_turn"
}

// usage is the tokens so far, in the words of the API.
func (e *agentStream) usage() object {
	u := e.g.usageNow()
	if e.x.messages {
		return object{"input_tokens": u.PromptTokens - u.Details.CachedTokens, "output_tokens": u.CompletionTokens, "cache_read_input_tokens": u.Details.CachedTokens}
	}
	return object{
		"input_tokens": u.PromptTokens, "output_tokens": u.CompletionTokens, "total_tokens": u.TotalTokens,
		"input_tokens_details": object{"cached_tokens": u.Details.CachedTokens},
	}
}

// item is the message in an answer of Responses.
func (e *agentStream) item(text, status string) object {
	return object{
		"id": e.g.id, "type": "message", "role": "assistant", "status": status,
		"content": []any{object{"type": "output_text", "text": text, "annotations": []any{}}},
	}
}

// whole is the answer in one piece.
func (e *agentStream) whole(text, status string) any {
	if e.x.messages {
		return object{
			"id": e.g.id, "type": "message", "role": "assistant", "model": e.g.model, "usage": e.usage(),
			"content": []any{object{"type": "text", "text": text}}, "stop_reason": e.stopReason(), "stop_sequence": nil,
		}
	}
	output := []any{}
	if status == "completed" {
		output = append(output, e.item(text, status))
	}
	return object{"id": e.g.id, "object": "response", "created_at": e.g.created, "model": e.g.model, "status": status, "output": output, "usage": e.usage()}
}
