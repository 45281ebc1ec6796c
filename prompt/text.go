package prompt

import "bytes"

var backslash = []byte{'\\'}

// A span is one piece of the canonical stream: a separator with its tag and
// then n bytes of data or arena.
type span struct {
	off, n int32
	media  int32 // estimated prompt tokens of an image or a recording
	tag    byte
	arena  bool // the bytes are in the arena, not in data
	// escaped says that there may be backslashes among the bytes.
	escaped bool
}

const (
	tagRole      = 'R' // begins a message
	tagText      = 'T'
	tagReasoning = 'K'
	tagName      = 'N'
	tagArguments = 'A'
	tagMedia     = 'M' // followed by a digest of eight bytes
	tagTools     = 'D'
	// tagIDs and the two bytes 0xFF at the start of such a span make one word of
	// four, which is no token id: ids of four bytes follow.
	tagIDs    = 0xFF
	tagGroups = 'a' // 'a' plus the group's number begins a group
)

// maxSpans bounds the memory of one Body to a few hundred KiB of spans.
const maxSpans = 1 << 14

// A groupKey is a part of the stream; the stream has them in this order.
type groupKey uint8

const (
	groupTemplate groupKey = iota
	groupSettings          // of the template
	groupTools
	groupFunctions
	groupContext // documents beside messages
	groupSystem
	groupPrompt    // messages, prompt, input, query, text_1
	groupDocuments // what comes after it: documents, text_2, suffix
	groupCount
)

// group is the range of spans of one part of the stream.
type group struct {
	from, to int
	hold     int // spans before it have a certain place; to, unless cut
	messages int
	cut      bool
}

// textOf says which part of the stream the value of a top-level key belongs to
// and what reads it; nil if it holds no prompt text. A parser takes the index of
// its value and returns where it ends, or -1 with b.hold set.
func textOf(e Endpoint, key []byte) (g groupKey, parse func(*Body, int) int) {
	switch e {
	case ChatCompletions, Messages, Tokenize, Embeddings:
		switch string(key) {
		case "messages":
			return groupPrompt, (*Body).messages
		case "system":
			if e == Messages {
				return groupSystem, (*Body).system
			}
		case "prompt":
			if e == Tokenize {
				return groupPrompt, (*Body).texts
			}
		case "input":
			if e == Embeddings {
				return groupPrompt, (*Body).texts
			}
		case "tools":
			return groupTools, (*Body).tools
		case "functions":
			return groupFunctions, (*Body).tools
		case "documents":
			return groupContext, (*Body).whole
		case "chat_template":
			return groupTemplate, (*Body).whole
		case "chat_template_kwargs":
			return groupSettings, (*Body).whole
		}
	case Completions:
		switch string(key) {
		case "prompt":
			return groupPrompt, (*Body).texts
		case "suffix":
			return groupDocuments, (*Body).texts
		}
	case Responses:
		switch string(key) {
		case "input":
			return groupPrompt, (*Body).messages
		case "instructions":
			return groupSystem, (*Body).system
		case "tools":
			return groupTools, (*Body).tools
		}
	case Rerank, Score:
		switch string(key) {
		case "query", "queries", "text_1", "data_1":
			return groupPrompt, (*Body).texts
		case "documents", "text_2", "data_2":
			return groupDocuments, (*Body).texts
		}
	}
	return 0, nil
}

// group runs parse on the value at i and keeps what it found as part g of the
// stream. A value without text leaves what an earlier key gave.
func (b *Body) group(g groupKey, parse func(*Body, int) int, i int) int {
	p := &b.groups[g]
	before := *p
	*p = group{from: len(b.spans)}
	i = parse(b, i)
	p.to = len(b.spans)
	p.hold = p.to
	if i < 0 {
		p.hold = b.hold
	}
	if p.to == p.from {
		*p = before
	}
	p.cut = i < 0
	return i
}

// sum adds up the spans of all parts.
func (b *Body) sum() {
	for i := range b.groups {
		g := &b.groups[i]
		b.MessageCount += g.messages
		for j := g.from; j < g.to; j++ {
			switch s := &b.spans[j]; s.tag {
			case tagMedia:
				b.MediaTokens += int(s.media)
			case tagIDs:
				b.TokenIDs += int(s.n-2) / 4
			default:
				b.TextBytes += int(s.n)
				if s.escaped {
					b.TextBytes -= bytes.Count(b.bytes(s), backslash)
				}
			}
		}
	}
}

// bytes returns the text that s represents.
func (b *Body) bytes(s *span) []byte {
	if s.arena {
		return b.arena[s.off : s.off+s.n]
	}
	return b.data[s.off : s.off+s.n]
}

// add records a span; if there are too many it says so and b is full.
func (b *Body) add(s span) bool {
	if len(b.spans) >= maxSpans {
		b.full = true
		b.hold = len(b.spans)
		return false
	}
	b.spans = append(b.spans, s)
	return true
}

// fail marks everything recorded so far as certain and returns -1.
func (b *Body) fail() int {
	b.hold = len(b.spans)
	return -1
}

// checked returns i, and fails if that is negative.
func (b *Body) checked(i int) int {
	if i < 0 {
		return b.fail()
	}
	return i
}

// skip goes past a value that holds no prompt text.
func (b *Body) skip(i int) int { return b.checked(skipValue(b.data, i)) }

// text records the string at i. A cut one counts up to the cut.
func (b *Body) text(i int, tag byte) int {
	s := span{off: int32(i + 1), tag: tag}
	if end := shortEnd(b.data, i+1); end >= 0 {
		if s.n = int32(end-1) - s.off; !b.add(s) {
			return -1
		}
		return end
	}
	end := stringEnd(b.data, i)
	raw := b.data[i+1:]
	if end >= 0 {
		raw = b.data[i+1 : end-1]
	}
	slash := bytes.IndexByte(raw, '\\')
	s.escaped = slash >= 0
	if s.escaped && hasLong(raw[slash:]) {
		s.off, s.arena = int32(len(b.arena)), true
		b.arena, _ = unescape(b.arena, b.data[i+1:], true)
		raw = b.arena[s.off:]
	} else if end < 0 {
		raw = trimCut(raw)
	}
	s.n = int32(len(raw))
	if !b.add(s) {
		return -1
	}
	return b.checked(end)
}

// literal records text that the body does not spell out.
func (b *Body) literal(text string, tag byte) bool {
	off := len(b.arena)
	b.arena = append(b.arena, text...)
	return b.add(span{off: int32(off), n: int32(len(text)), tag: tag, arena: true})
}

// raw records the composite value at i byte for byte.
func (b *Body) raw(i int, tag byte) int {
	end := skipValue(b.data, i)
	n := end - i
	if end < 0 {
		n = len(b.data) - i
	}
	if !b.add(span{off: int32(i), n: int32(n), tag: tag, escaped: true}) {
		return -1
	}
	return b.checked(end)
}

// tools records the tool definitions at i. No tools are the same as none.
func (b *Body) tools(i int) int {
	if b.data[i] != '[' {
		return b.skip(i)
	}
	return b.whole(i)
}

// whole records a string, or an array or object byte for byte. An empty one is
// the same as none.
func (b *Body) whole(i int) int {
	switch c := b.data[i]; c {
	case '"':
		return b.text(i, tagText)
	case '[', '{':
		const closing = '}' - '{' // of either bracket
		if at, done := step(b.data, i, true, c+closing); done || at < 0 {
			return b.checked(at)
		}
		return b.raw(i, tagTools)
	}
	return b.skip(i)
}
