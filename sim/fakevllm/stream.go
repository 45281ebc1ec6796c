package fakevllm

import (
	"net/http"
	"strconv"

	"github.com/bytedance/sonic"
)

// streamAnswer sends each token as a separate event, as soon as it exists. It sends the
// headers before the first token, as vLLM does.
func (s *Server) streamAnswer(x *exchange, g *generation) {
	h := x.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	x.w.WriteHeader(http.StatusOK)
	x.flush()

	head := append([]byte(`data: {"id":`), quote(g.id)...)
	head = append(head, `,"object":"`+g.chunk+`","created":`...)
	head = strconv.AppendInt(head, g.created, 10)
	head = append(head, `,"model":`...)
	head = append(head, quote(g.model)...)
	head = append(head, `,"choices":[`...)

	st := &stream{Server: s, x: x, g: g, head: head, sent: make([]int, len(g.seqs))}
	st.intro = quote(s.intro)
	st.intro = st.intro[1 : len(st.intro)-1]
	for more := true; more; {
		if !s.wait(x, g) {
			st.buf = append(st.buf, "data: "...)
			st.buf = append(st.buf, coreDead.json()...)
			st.buf = append(st.buf, "\n\ndata: [DONE]\n\n"...)
			st.send()
			return
		}
		more = !g.done.Load()
		st.tokens()
		st.send()
	}
	if g.usage {
		usage, err := sonic.Marshal(g.usageNow())
		if err != nil {
			panic(err) // our own types always marshal
		}
		st.begin()
		st.buf = append(append(st.buf, `],"usage":`...), usage...)
		st.end()
	}
	st.buf = append(st.buf, "data: [DONE]\n\n"...)
	st.send()
}

// stream is the state of one answer being sent.
type stream struct {
	*Server
	x     *exchange
	g     *generation
	head  []byte // the beginning of all chunks
	intro []byte // the first token, escaped
	sent  []int  // tokens sent, by sequence
	buf   []byte
}

// tokens appends a chunk for each new token.
func (st *stream) tokens() {
	for i, q := range st.g.seqs {
		n := int(q.produced.Load())
		for ; st.sent[i] < n; st.sent[i]++ {
			if st.sent[i] == 0 && st.g.chat {
				st.begin()
				st.open(i, `{"role":"assistant","content":""}`, nil)
				st.close("")
			}
			finish := ""
			if st.sent[i] == q.Output-1 {
				finish = q.finish
			}
			text := st.intro
			if st.sent[i] > 0 {
				var space [8]byte
				text = st.appendToken(space[:0], st.g.seeds[i], st.sent[i])
			}
			st.begin()
			if st.g.chat {
				st.open(i, `{"content":"`, text)
				st.buf = append(st.buf, `"}`...)
			} else {
				st.open(i, `"`, text)
				st.buf = append(st.buf, '"')
			}
			st.close(finish)
		}
	}
}

// begin starts a chunk.
func (st *stream) begin() { st.buf = append(st.buf, st.head...) }

// open writes the beginning of a choice, including its text.
func (st *stream) open(index int, before string, text []byte) {
	st.buf = append(st.buf, `{"index":`...)
	st.buf = strconv.AppendInt(st.buf, int64(index), 10)
	if st.g.chat {
		st.buf = append(st.buf, `,"delta":`...)
	} else {
		st.buf = append(st.buf, `,"text":`...)
	}
	st.buf = append(st.buf, before...)
	st.buf = append(st.buf, text...)
}

// close writes the end of a choice and its chunk.
func (st *stream) close(finish string) {
	st.buf = append(st.buf, `,"logprobs":null,"finish_reason":`...)
	if finish == "" {
		st.buf = append(st.buf, `null}]`...)
	} else {
		st.buf = append(st.buf, `"`+finish+`","stop_reason":null}]`...)
	}
	if st.g.usageEach {
		usage, err := sonic.Marshal(st.g.usageNow())
		if err != nil {
			panic(err) // our own types always marshal
		}
		st.buf = append(append(st.buf, `,"usage":`...), usage...)
	}
	st.end()
}

// end ends a chunk, and the connection if the fault says so.
func (st *stream) end() {
	st.buf = append(st.buf, "}\n\n"...)
	st.x.chunks++
	if st.x.chunks == st.x.fault.abortAfter {
		st.send()
		st.x.abort()
	}
}

// send sends the buffer to the client.
func (st *stream) send() {
	if _, err := st.x.w.Write(st.buf); err != nil {
		panic(http.ErrAbortHandler)
	}
	st.buf = st.buf[:0]
	st.x.flush()
}

// quote returns a string in JSON.
func quote(s string) []byte {
	b, err := sonic.Marshal(s)
	if err != nil {
		panic(err) // strings always marshal
	}
	return b
}
