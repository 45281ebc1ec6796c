package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/bytedance/sonic"

	"pointsman/decider"
	"pointsman/session"
)

const (
	// textBlockTokens are the tokens behind a block of text.
	textBlockTokens = decider.BlockBytes / charsPerToken
	// defaultOutput is the length of an answer of which nothing is known.
	defaultOutput = 256
	sessionHeader = "x-session-id"
)

// traceLine is a line of either form; which one its fields tell.
type traceLine struct {
	lengthsLine
	// A request with its text: the body as it was sent, or a prompt alone.
	Body    json.RawMessage `json:"body"`
	Prompt  *string         `json:"prompt"`
	Path    string          `json:"path"`
	Session string          `json:"session"`
	// Tokens is how long the answer was; without it max_tokens stands for it.
	Tokens int `json:"output_tokens"`
}

func (p *traceParser) line(data []byte) error {
	var l traceLine
	if err := sonic.Unmarshal(data, &l); err != nil {
		return errors.New("not a JSON object of a known form")
	}
	if math.Abs(l.Timestamp) > maxTraceTime*10 {
		return fmt.Errorf("timestamp %g, want milliseconds", l.Timestamp)
	}
	text := l.Body != nil || l.Prompt != nil
	if len(p.calls) > 0 && p.lengths == text {
		return errors.New("a request of another form than the first one")
	}
	p.lengths = !text
	var c Call
	var err error
	if text {
		if p.text == nil {
			p.text = newTextReader()
		}
		c, err = p.text.call(&l, p.options.Visible)
	} else {
		c, err = l.lengthsLine.call()
	}
	if err != nil {
		return err
	}
	p.calls, p.times = append(p.calls, c), append(p.times, l.Timestamp)
	return nil
}

// textReader reads requests as serve does: by Decider.Read.
type textReader struct {
	decider *decider.Decider
	request decider.Request
}

func newTextReader() *textReader {
	d := decider.New(func() time.Duration { return 0 }, func() uint64 { return 0 })
	d.Apply(decider.Config{
		Pools:   []decider.PoolConfig{{Name: "trace", Policy: prefixReader{}}},
		Session: session.NewHeaders([]string{sessionHeader}),
	})
	return &textReader{decider: d}
}

// prefixReader is a policy that has prompts hashed, and no opinion.
type prefixReader struct{}

func (prefixReader) Rank(_ *decider.Request, _ *decider.View, dst []int) []int { return dst }
func (prefixReader) UsesPrefix() bool                                          { return true }

func (t *textReader) call(l *traceLine, visible int) (Call, error) {
	body, path := []byte(l.Body), l.Path
	if l.Prompt != nil {
		if l.Body != nil {
			return Call{}, errors.New("both a body and a prompt")
		}
		var err error
		if body, err = sonic.Marshal(map[string]any{"prompt": *l.Prompt, "stream": true}); err != nil {
			return Call{}, err
		}
		path = "/v1/completions"
	}
	if path == "" {
		path = "/v1/chat/completions"
	}
	t.read(l, path, body, len(body))
	r := &t.request
	if r.Input > maxCallTokens {
		return Call{}, fmt.Errorf("a prompt of %d tokens, want up to %d", r.Input, maxCallTokens)
	}
	c := Call{
		Input: max(r.Input, 1), Output: l.Tokens, Estimate: r.Input,
		Blocks: append([]uint64(nil), r.Blocks...), Session: r.Session, HasSession: r.HasSession,
		Stream: r.Stream,
	}
	if c.Output <= 0 {
		c.Output = r.Output
	}
	if c.Output <= 0 {
		c.Output = defaultOutput
	}
	c.Output = min(c.Output, maxCallTokens)
	c.Seen = c.Blocks
	if visible > 0 && visible < len(body) {
		t.read(l, path, body[:visible], len(body))
		c.Seen, c.Estimate, c.Cut = append([]uint64(nil), r.Blocks...), r.Input, r.Cut
	}
	return c, nil
}

// read reads a body of size bytes of which an agent sees body.
func (t *textReader) read(l *traceLine, path string, body []byte, size int) {
	var head []byte
	if l.Session != "" {
		head = []byte(sessionHeader + ": " + l.Session + "\r\n")
	}
	var refused decider.Decision
	t.decider.Read(&t.request, decider.Input{Path: []byte(path), Headers: head, Body: body, BodySize: size}, &refused)
}

var _ decider.PrefixUser = prefixReader{}
