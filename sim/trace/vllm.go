package trace

import (
	"bytes"
	"errors"
	"pointsman/keyed"
	"regexp"
	"strconv"
	"time"

	"pointsman/decider/kvcache"
)

// vllmLog is the state of reading vLLM's log. With --enable-log-requests it has a
// line for each request, with the prompt in it, or from 0.11 on in a line of the
// level DEBUG before it, and with --enable-log-outputs one for each answer.
type vllmLog struct {
	details  map[string]vllmPrompt // by id of the request
	requests map[string]int        // by id: the index in parser.requests
	lines    int                   // of requests, with or without a prompt
	last     time.Time
	years    int // that have passed: the log does not tell the year
}

// vllmPrompt is the prompt of a line.
type vllmPrompt struct {
	text   *string
	tokens []uint32
}

// maxVLLMID bounds the id of a request, in bytes.
const maxVLLMID = 256

// maxVLLMPending bounds the prompts whose requests have yet to come.
const maxVLLMPending = 1 << 16

var (
	vllmTime     = regexp.MustCompile(`(\d\d-\d\d \d\d:\d\d:\d\d)`)
	vllmReceived = []byte("Received request ")
	vllmDetails  = []byte(" details: ")
	vllmRequest  = []byte("Request ")
	vllmAnswer   = []byte("Generated response ")
	vllmMax      = regexp.MustCompile(`\bmax_tokens=(\d+)`)
	vllmPooling  = []byte("params: PoolingParams(")
)

// logLine reads a line of vLLM's log. It skips lines that belong to no request.
func (p *parser) logLine(line []byte) error {
	v := &p.vllm
	if v.details == nil {
		v.details, v.requests = map[string]vllmPrompt{}, map[string]int{}
	}
	// A prompt may hold any of the words: the first one counts.
	at := func(word []byte) int {
		if i := bytes.Index(line, word); i >= 0 {
			return i
		}
		return len(line)
	}
	received, answer, details := at(vllmReceived), at(vllmAnswer), at(vllmRequest)
	switch first := min(received, answer, details); {
	case first == len(line):
	case first == received:
		return p.vllmReceived(line[:first], line[first+len(vllmReceived):])
	case first == answer:
		v.answer(p, line[first+len(vllmAnswer):])
	default:
		v.detail(line[first+len(vllmRequest):])
	}
	return nil
}

// detail keeps the prompt of a request that is logged next.
func (v *vllmLog) detail(rest []byte) {
	id, rest, ok := bytes.Cut(rest, vllmDetails)
	if !ok || len(id) > maxVLLMID || len(v.details) >= maxVLLMPending {
		return
	}
	if prompt, _, ok := readVLLMPrompt(rest); ok {
		v.details[string(id)] = prompt
	}
}

// vllmReceived reads the line of a request, before and after those words.
func (p *parser) vllmReceived(before, after []byte) error {
	v := &p.vllm
	when := vllmTime.Find(before)
	id, rest, ok := bytes.Cut(after, []byte(": "))
	if when == nil || !ok || len(id) > maxVLLMID {
		return nil
	}
	v.lines++
	at, ok := v.time(string(when))
	if !ok {
		return nil
	}
	prompt, params, ok := readVLLMPrompt(rest)
	if !ok {
		prompt, ok = v.details[string(id)]
		params = rest
	}
	delete(v.details, string(id))
	if !ok {
		return nil // no prompt: counted in lines
	}
	r, err := p.vllmRequest(prompt)
	if err != nil {
		return err
	}
	r.Output, r.MaxTokens = -1, 0
	if m := vllmMax.FindSubmatch(params); m != nil {
		// vLLM fills in the rest of the context, which says nothing.
		if n, err := strconv.Atoi(string(m[1])); err == nil && n > 0 && n <= maxAsked {
			r.MaxTokens = n
		}
	}
	if bytes.HasPrefix(params, vllmPooling) {
		r.Output, r.Stream = 1, false
	}
	if len(v.requests) < maxVLLMPending {
		v.requests[string(id)] = len(p.requests)
	}
	return p.add(vllmKind, r, at)
}

// maxAsked is the longest limit that is assumed to come from a client.
const maxAsked = 16 << 10

// vllmRequest is the request with that prompt.
func (p *parser) vllmRequest(prompt vllmPrompt) (Request, error) {
	n := len(prompt.tokens)
	if n > maxTokens {
		return Request{}, errors.New("a prompt of too many tokens")
	}
	if n > 0 {
		blocks := kvcache.AppendKeys(nil, unkeyed, 0, prompt.tokens, textBlockTokens)
		return Request{Input: n, Estimate: n, Blocks: blocks, Visible: blocks, Stream: true}, nil
	}
	return p.read(&textLine{Prompt: prompt.text})
}

// time is the time of a line. A log that goes from December to January goes on.
func (v *vllmLog) time(text string) (stamp, bool) {
	t, err := time.Parse("2006-01-02 15:04:05", "2024-"+text) // a leap year
	if err != nil {
		return stamp{}, false
	}
	if !v.last.IsZero() && v.last.Sub(t.AddDate(v.years, 0, 0)) > 180*24*time.Hour {
		v.years++
	}
	v.last = t.AddDate(v.years, 0, 0)
	return stamp{value: float64(v.last.UnixMilli()), date: true, known: true}, true
}

// answer reads the line of an answer, after its beginning, for the length of it.
func (v *vllmLog) answer(p *parser, rest []byte) {
	at := bytes.IndexAny(rest, ": ")
	if at < 0 || bytes.HasPrefix(rest[at:], []byte(" (streaming delta)")) {
		return
	}
	id := string(rest[:at])
	i, ok := v.requests[id]
	if !ok {
		return
	}
	rest = bytes.TrimPrefix(rest[at:], []byte(" (streaming complete)"))
	if list, ok := bytes.CutPrefix(rest, []byte(" details: output_token_ids: ")); ok {
		// Newer versions have the tokens in a line of their own, before the text.
		if tokens, _, ok := pythonInts(list); ok {
			v.answered(p, i, id, len(tokens))
		}
		return
	}
	_, rest, ok = bytes.Cut(rest, []byte("output: "))
	if !ok {
		return
	}
	text, rest, ok := pythonString(rest)
	if !ok {
		return
	}
	n := len(text) / charsPerToken
	if list, ok := bytes.CutPrefix(rest, []byte(", output_token_ids: ")); ok {
		if tokens, _, ok := pythonInts(list); ok {
			n = len(tokens)
		}
	}
	v.answered(p, i, id, n)
}

// answered sets the length of the answer to request i, in tokens.
func (v *vllmLog) answered(p *parser, i int, id string, n int) {
	p.requests[i].Output, p.unknown[i] = min(max(n, 1), maxTokens), false
	delete(v.requests, id)
}

// readVLLMPrompt reads "prompt: …", and the token ids where the line has them.
func readVLLMPrompt(line []byte) (prompt vllmPrompt, rest []byte, ok bool) {
	line, ok = bytes.CutPrefix(line, []byte("prompt: "))
	if !ok {
		return prompt, nil, false
	}
	if after, none := bytes.CutPrefix(line, []byte("None")); none {
		rest = after
	} else {
		text, after, ok := pythonString(line)
		if !ok {
			return prompt, nil, false
		}
		prompt.text, rest = &text, after
	}
	rest = bytes.TrimPrefix(rest, []byte(", "))
	if _, list, ok := bytes.Cut(rest, []byte("prompt_token_ids: ")); ok {
		prompt.tokens, _, _ = pythonInts(list)
	}
	return prompt, rest, prompt.text != nil || len(prompt.tokens) > 0
}

// unkeyed hashes the blocks of recorded prompts, without a secret: nobody attacks a
// simulation.
var unkeyed = keyed.New(nil)
