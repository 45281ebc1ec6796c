package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/decider"
	"pointsman/intake"
	"pointsman/session"
)

const (
	// textBlockTokens is the number of tokens in a block of text.
	textBlockTokens = decider.BlockBytes / charsPerToken
	sessionHeader   = "x-session-id"
)

// probe shows the form of an object by the keys that it has.
type probe struct {
	Recorder         json.RawMessage `json:"recorder"`
	BlockTokens      json.RawMessage `json:"block_tokens"`
	Outcome          json.RawMessage `json:"outcome"`
	InputLength      json.RawMessage `json:"input_length"`
	Body             json.RawMessage `json:"body"`
	Prompt           json.RawMessage `json:"prompt"`
	PromptTokens     json.RawMessage `json:"prompt_tokens"`
	CompletionTokens json.RawMessage `json:"completion_tokens"`
}

// object reads a JSON object.
func (p *parser) object(data []byte) error {
	var has probe
	if err := sonic.Unmarshal(data, &has); err != nil {
		return p.bad(errObject)
	}
	switch {
	case has.Recorder != nil:
		var h headerLine
		if err := sonic.Unmarshal(data, &h); err != nil {
			return errObject
		}
		return p.recordingHeader(h)
	case has.InputLength != nil && has.Outcome != nil:
		return decoded(data, p.recorded)
	case has.InputLength != nil:
		return decoded(data, p.lengths)
	case has.Body != nil || has.Prompt != nil:
		return decoded(data, p.withText)
	case has.PromptTokens != nil && has.CompletionTokens != nil:
		return decoded(data, p.liteLLM)
	}
	return p.bad(errors.New("none of the keys input_length, body, prompt and prompt_tokens"))
}

// decoded reads data by read.
func decoded[T any](data []byte, read func(*T) error) error {
	var l T
	if err := sonic.Unmarshal(data, &l); err != nil {
		var bad badTime
		if errors.As(err, &bad) {
			return bad
		}
		return errObject
	}
	return read(&l)
}

// bad is an error in the first request, which shows that the file is of another
// form, or in a later one.
func (p *parser) bad(err error) error {
	if len(p.requests) == 0 && !p.recording.found {
		return errForm{err.Error()}
	}
	return err
}

// textLine is a request with its text: the body as it was sent, or only a prompt.
type textLine struct {
	Timestamp stamp           `json:"timestamp"`
	Body      json.RawMessage `json:"body"`
	Prompt    *string         `json:"prompt"`
	Path      string          `json:"path"`
	Session   string          `json:"session"`
	// Tokens is the length of the answer. Without it, max_tokens is used.
	Tokens int `json:"output_tokens"`
}

// withText reads a line with text.
func (p *parser) withText(l *textLine) error {
	r, err := p.read(l)
	if err != nil {
		return err
	}
	if r.Output = l.Tokens; r.Output <= 0 {
		r.Output = r.MaxTokens
	}
	if r.Output <= 0 {
		r.Output = defaultOutput
	}
	r.Output = min(r.Output, maxTokens)
	return p.add(textKind, r, l.Timestamp)
}

// read reads a request with its text as the agent does. It leaves the length of the
// answer open.
func (p *parser) read(l *textLine) (Request, error) {
	if p.text == nil {
		p.text = newTextReader()
	}
	return p.text.parse(l, p.options.VisibleChars)
}

// textReader reads requests as the agent does.
type textReader struct {
	intake  *intake.Intake
	request intake.Request
}

func newTextReader() *textReader {
	in := intake.New(decider.New(func() time.Duration { return 0 }, func() uint64 { return 0 }))
	in.Apply(intake.Config{
		Pools:   []decider.PoolConfig{{Name: "trace", Policy: prefixReader{}}},
		Session: session.NewHeaders([]string{sessionHeader}),
	})
	return &textReader{intake: in}
}

// prefixReader is a policy that ranks nothing, but needs prompts hashed.
type prefixReader struct{}

func (prefixReader) Rank(_ *decider.Request, _ *decider.View, dst []int) []int { return dst }
func (prefixReader) UsesPrefix() bool                                          { return true }

func (t *textReader) parse(l *textLine, visible int) (Request, error) {
	body, path := []byte(l.Body), l.Path
	if l.Prompt != nil {
		if l.Body != nil {
			return Request{}, errors.New("both a body and a prompt")
		}
		var err error
		if body, err = sonic.Marshal(map[string]any{"prompt": *l.Prompt, "stream": true}); err != nil {
			return Request{}, err
		}
		path = "/v1/completions"
	}
	if path == "" {
		path = "/v1/chat/completions"
	}
	t.read(l, path, body, len(body))
	r := &t.request
	if r.Input > maxTokens {
		return Request{}, fmt.Errorf("a prompt of %d tokens, want up to %d", r.Input, maxTokens)
	}
	out := Request{
		Input: max(r.Input, 1), Estimate: r.Input,
		Blocks: append([]uint64(nil), r.Blocks...), Session: r.Session, HasSession: r.HasSession,
		Stream: r.Stream, MaxTokens: max(r.Output, 0),
	}
	out.Visible = out.Blocks
	if visible > 0 && visible < len(body) {
		t.read(l, path, body[:visible], len(body))
		out.Visible, out.Estimate, out.Truncated = append([]uint64(nil), r.Blocks...), r.Input, r.Cut
	}
	return out, nil
}

// read reads a request whose body has size bytes, of which only body is visible.
func (t *textReader) read(l *textLine, path string, body []byte, size int) {
	var head []byte
	if l.Session != "" {
		head = []byte(sessionHeader + ": " + l.Session + "\r\n")
	}
	t.intake.Read(&t.request, intake.Input{Path: []byte(path), Headers: head, Body: body, BodySize: size})
}

// keyOf is the key of a session, or of another id.
func keyOf(id string) uint64 { return session.Key([]byte(id)) }

var _ decider.PrefixUser = prefixReader{}
