package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/decider"
	"pointsman/intake"
	"pointsman/session"
)

const (
	// textBlockTokens is the number of tokens in a block of text.
	textBlockTokens = decider.BlockBytes / charsPerToken
	// defaultOutput is the length of an answer in tokens if the trace does not
	// say it.
	defaultOutput = 256
	sessionHeader = "x-session-id"
)

// line is a line of either form; its fields show which one.
type line struct {
	mooncakeLine
	// A request with its text: the body as it was sent, or only a prompt.
	Body    json.RawMessage `json:"body"`
	Prompt  *string         `json:"prompt"`
	Path    string          `json:"path"`
	Session string          `json:"session"`
	// Tokens is the length of the answer. Without it, max_tokens is used.
	Tokens int `json:"output_tokens"`
}

func (p *parser) line(data []byte) error {
	var l line
	if err := sonic.Unmarshal(data, &l); err != nil {
		return errors.New("not a JSON object of a known form")
	}
	if math.Abs(l.Timestamp) > maxTime*10 {
		return fmt.Errorf("timestamp %g, want milliseconds", l.Timestamp)
	}
	text := l.Body != nil || l.Prompt != nil
	if len(p.requests) > 0 && p.mooncake == text {
		return errors.New("not in the same form as the first request")
	}
	p.mooncake = !text
	var r Request
	var err error
	if text {
		if p.text == nil {
			p.text = newTextReader()
		}
		r, err = p.text.parse(&l, p.options.VisibleChars)
	} else {
		r, err = l.mooncakeLine.request()
	}
	if err != nil {
		return err
	}
	p.requests, p.times = append(p.requests, r), append(p.times, l.Timestamp)
	return nil
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

func (t *textReader) parse(l *line, visible int) (Request, error) {
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
		Input: max(r.Input, 1), Output: l.Tokens, Estimate: r.Input,
		Blocks: append([]uint64(nil), r.Blocks...), Session: r.Session, HasSession: r.HasSession,
		Stream: r.Stream, MaxTokens: max(r.Output, 0),
	}
	if out.Output <= 0 {
		out.Output = r.Output
	}
	if out.Output <= 0 {
		out.Output = defaultOutput
	}
	out.Output = min(out.Output, maxTokens)
	out.Visible = out.Blocks
	if visible > 0 && visible < len(body) {
		t.read(l, path, body[:visible], len(body))
		out.Visible, out.Estimate, out.Truncated = append([]uint64(nil), r.Blocks...), r.Input, r.Cut
	}
	return out, nil
}

// read reads a request whose body has size bytes, of which only body is visible.
func (t *textReader) read(l *line, path string, body []byte, size int) {
	var head []byte
	if l.Session != "" {
		head = []byte(sessionHeader + ": " + l.Session + "\r\n")
	}
	t.intake.Read(&t.request, intake.Input{Path: []byte(path), Headers: head, Body: body, BodySize: size})
}

var _ decider.PrefixUser = prefixReader{}
