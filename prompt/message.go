package prompt

import "bytes"

// maxDepth bounds the nesting of items: a message, its part, a part of a tool's
// result or a called function, and one to spare.
const maxDepth = 3

// messages records an array of messages, or of the input items of Responses.
// There a string is one message of the user.
func (b *Body) messages(i int) int {
	if b.data[i] == '"' && b.endpoint == Responses {
		if !b.literal("user", tagRole) {
			return -1
		}
		b.groups[groupPrompt].messages = 1
		return b.text(i, tagText)
	}
	if b.data[i] != '[' {
		return b.skip(i)
	}
	for first := true; ; first = false {
		at, done := step(b.data, i, first, ']')
		if done || at < 0 {
			return b.checked(at)
		}
		if b.data[at] != '{' {
			i = b.skip(at)
		} else {
			b.groups[groupPrompt].messages++
			i = b.item(at, 0, true)
		}
		if i < 0 {
			return -1
		}
	}
}

// system records a system prompt outside the messages as if it were
// a message.
func (b *Body) system(i int) int {
	from := len(b.spans)
	if !b.literal("system", tagRole) {
		return -1
	}
	i = b.content(i, 1)
	if len(b.spans) == from+1 {
		b.spans = b.spans[:from]
		b.hold = from
	} else {
		b.dropBilling(from + 1)
	}
	return i
}

// BillingHeader begins a line of Claude Code's system prompt that differs in each request.
// vLLM drops it, and llama.cpp writes the same in all.
const BillingHeader = "x-anthropic-billing-header"

// dropBilling drops the billing line of a system prompt, whose content is the spans
// from one on.
func (b *Body) dropBilling(from int) {
	for i := from; i < len(b.spans); i++ {
		s := &b.spans[i]
		text := b.bytes(s)
		if s.tag != tagText || len(text) < len(BillingHeader) || string(text[:len(BillingHeader)]) != BillingHeader {
			continue
		}
		drop := s.n
		if end := bytes.Index(text, []byte(`\n`)); end >= 0 {
			drop = int32(end) + 2
		}
		s.off, s.n = s.off+drop, s.n-drop
	}
}

// content records a string, a part, or an array of parts.
func (b *Body) content(i, depth int) int {
	switch b.data[i] {
	case '"':
		return b.text(i, tagText)
	case '{':
		return b.item(i, depth, false)
	case '[':
	default:
		return b.skip(i)
	}
	for first := true; ; first = false {
		at, done := step(b.data, i, first, ']')
		if done || at < 0 {
			return b.checked(at)
		}
		switch b.data[at] {
		case '"':
			i = b.text(at, tagText)
		case '{':
			i = b.item(at, depth, false)
		default:
			i = b.skip(at)
		}
		if i < 0 {
			return -1
		}
	}
}

// A field is a place within an item. The stream has them in this order,
// whatever the order of the keys. Keys of which an item has but one share a
// field.
type field int8

const (
	noField field = iota - 1
	fieldRole
	fieldContent
	fieldRefusal
	fieldReasoning
	fieldName
	fieldArguments
	fieldCalls
	fieldCount
)

func fieldOf(key []byte) field {
	switch string(key) {
	case "role":
		return fieldRole
	case "content", "text", "output", "image_url", "image", "source", "file",
		"input_audio", "audio_url", "video_url":
		return fieldContent
	case "refusal":
		return fieldRefusal
	case "reasoning", "reasoning_content", "thinking":
		return fieldReasoning
	case "name":
		return fieldName
	case "arguments", "input":
		return fieldArguments
	case "tool_calls", "function", "function_call":
		return fieldCalls
	}
	return noField
}

// item records the object at i: a message (which begins with its role even if it
// has none), or a part, a tool call or a document.
func (b *Body) item(i, depth int, message bool) int {
	if depth > maxDepth {
		return b.skip(i)
	}
	var fields [fieldCount]struct{ from, to int }
	base, roleSeen, ordered := len(b.spans), !message, true
	if message {
		if !b.add(span{tag: tagRole}) {
			return -1
		}
		base++
	}
	last := noField
	certain := -1 // spans of content that are certain, if the cut is within it
	for first := true; ; first = false {
		key, at, done := b.member(i, first)
		if i = at; done || i < 0 {
			break
		}
		f := fieldOf(key)
		from := len(b.spans)
		if f == noField || f == fieldRole && !message {
			i = b.skip(at)
		} else {
			i = b.fieldAt(f, key, at, depth)
		}
		if to := len(b.spans); to > from {
			if f == fieldRole {
				b.spans[base-1] = b.spans[from]
				b.spans = b.spans[:from]
				roleSeen = i >= 0
			} else {
				fields[f].from, fields[f].to = from, to
				ordered = ordered && f > last
				last = max(last, f)
			}
		}
		if i < 0 {
			if f == fieldContent && len(b.spans) > from {
				certain = b.hold - from
			}
			break
		}
	}
	if i < 0 {
		// Certain are the role and then the content; anything else may yet be
		// preceded by one of them.
		if certain < 0 {
			certain = fields[fieldContent].to - fields[fieldContent].from
		}
		b.hold = base + certain
		if !roleSeen {
			b.hold = base - 1
		}
	}
	if message && string(b.bytes(&b.spans[base-1])) == "system" {
		b.dropBilling(base)
	}
	if !ordered {
		b.spare = b.spare[:0]
		for _, f := range fields[fieldContent:] {
			b.spare = append(b.spare, b.spans[f.from:f.to]...)
		}
		b.spans = append(b.spans[:base], b.spare...)
	}
	return i
}

// fieldAt records the value at i of an item's key.
func (b *Body) fieldAt(f field, key []byte, i, depth int) int {
	c := b.data[i]
	switch {
	case f == fieldContent:
		switch string(key) {
		case "content", "text", "output":
			return b.content(i, depth+1)
		}
		return b.media(mediaOf(key), i)
	case c == '"':
		switch f {
		case fieldRole:
			return b.text(i, tagRole)
		case fieldRefusal:
			return b.text(i, tagText)
		case fieldReasoning:
			return b.text(i, tagReasoning)
		case fieldName:
			return b.text(i, tagName)
		case fieldArguments:
			return b.text(i, tagArguments)
		}
	case f == fieldArguments && (c == '{' || c == '['):
		return b.raw(i, tagArguments)
	case f == fieldCalls && (c == '{' || c == '['):
		return b.content(i, depth+1)
	}
	return b.skip(i)
}
