package prompt

import (
	"bytes"
	"pointsman/keyed"
)

// DefaultLimit is how many bytes of a body Scan looks at when it is given no
// limit.
const DefaultLimit = 1 << 20

// maxLimit keeps offsets within 32 bits.
const maxLimit = 1 << 30

// Body is what one scan saw. The zero value is ready. It is meant to be reused
// and is not for concurrent use. Its slices point into the scanned data or into
// the Body and are valid until the next Scan, as long as the data is.
type Body struct {
	// Model, User and CacheSalt are unescaped; nil is absent or not wholly
	// seen, empty but not nil is "".
	Model, User, CacheSalt []byte
	// What names the conversation that a request belongs to, unescaped like Model.
	Conversation, PromptCacheKey  []byte
	MetadataSession, MetadataUser []byte // metadata.session_id and .user_id
	PreviousResponse              []byte // previous_response_id
	// MaxTokens is how many output tokens are asked for:
	// max_completion_tokens, else max_tokens; max_output_tokens for Responses.
	// -1 is absent or nonsense.
	MaxTokens int
	// N is how many choices are asked for, 1 when absent or nonsense.
	N int
	// Stream is whether the answer is to be streamed.
	Stream bool
	// Priority is the request's own; it counts only with HasPriority.
	Priority    int
	HasPriority bool
	// TextBytes counts the bytes of prompt text seen: roles, content, names,
	// arguments and tool definitions, without separators. An escaped character
	// counts one byte; backslashes count none.
	TextBytes int
	// TokenIDs counts the prompt's token ids seen.
	TokenIDs int
	// MediaTokens estimates the prompt tokens of images and recordings seen.
	MediaTokens int
	// CutMedium is whether the data ended within an image or a recording: then most
	// of what follows is no text.
	CutMedium bool
	// Unseen counts the bytes that may hold a prompt in a form that is not read:
	// all of what is no JSON object, and the values of a request to Other.
	Unseen int
	// Opaque is whether the data is no JSON object: another encoding, above all.
	Opaque bool
	// Ambiguous is whether the body names two different models.
	Ambiguous bool
	// MessageCount counts the messages (Responses: input items) begun.
	MessageCount int
	// Template is a hash of what shapes the chat template besides messages and tools;
	// 0 if nothing of it was seen.
	Template uint64
	// Complete is whether the closing brace of the document was seen within
	// the limit and all of its text was recorded.
	Complete bool
	// Scanned is how many bytes were looked at.
	Scanned int

	// Key is what the text is hashed with, set before the Scan; nil for tests and tools
	// that have no secret.
	Key *keyed.Key

	endpoint Endpoint
	// data is the part of the body within the limit. It is kept for Blocks.
	data []byte
	// arena holds unescaped strings, token ids and digests. Slices into it
	// survive its growth, because growth copies.
	arena  []byte
	spans  []span
	spare  []span // where item puts spans in order
	groups [groupCount]group
	// hold is, after a parser failed, the number of spans whose place in the
	// stream is certain.
	hold int
	// full says that the parser failed for want of spans, not of data.
	full bool
	// modelSeen says that the body has a key "model".
	modelSeen bool
	// max, maxCompletion and maxOutput are the three spellings of MaxTokens.
	max, maxCompletion, maxOutput int

	digest keyed.Digest
	most   int     // the length at which FirstBlocks ends
	tag    [2]byte // the separator being hashed; here so that it does not escape
}

// Scan forgets what b saw and reads data, the body of a request to e or its
// beginning, looking at no more than limit bytes (DefaultLimit if limit is not
// positive). What is not a JSON object yields nothing; what stops being JSON is
// read up to there. It does not allocate once b's buffers have grown.
func (b *Body) Scan(data []byte, e Endpoint, limit int) {
	if limit <= 0 {
		limit = DefaultLimit
	}
	b.reset(data[:min(len(data), limit, maxLimit)], e)
	complete, dropped := b.document()
	b.Complete = complete && !dropped
	b.sum()
}

func (b *Body) reset(data []byte, e Endpoint) {
	b.Model, b.User, b.CacheSalt = nil, nil, nil
	b.Conversation, b.PromptCacheKey, b.MetadataSession, b.MetadataUser, b.PreviousResponse = nil, nil, nil, nil, nil
	b.N, b.Stream, b.Priority, b.HasPriority = 1, false, 0, false
	b.MaxTokens, b.max, b.maxCompletion, b.maxOutput = -1, -1, -1, -1
	b.TextBytes, b.TokenIDs, b.MediaTokens, b.MessageCount = 0, 0, 0, 0
	b.CutMedium, b.Unseen, b.Opaque, b.Ambiguous = false, 0, false, false
	b.Template = 0
	b.Complete, b.Scanned = false, len(data)
	b.endpoint, b.data = e, data
	b.arena, b.spans = b.arena[:0], b.spans[:0]
	b.groups = [groupCount]group{}
	b.hold, b.full, b.modelSeen = 0, false, false
}

// document reads the members of the top level. It reports whether the closing
// brace was reached and whether text was dropped for want of spans.
func (b *Body) document() (complete, dropped bool) {
	i := 0
	if bytes.HasPrefix(b.data, byteOrderMark) {
		i = len(byteOrderMark) // decoders skip it
	}
	i = skipSpace(b.data, i)
	if i == len(b.data) || b.data[i] != '{' || bytes.IndexByte(b.data[:min(len(b.data), 4)], 0) >= 0 {
		b.opaque() // a zero that early makes it UTF-16 or UTF-32, as decoders see it
		return false, false
	}
	for first := true; ; first = false {
		key, at, done := b.member(i, first)
		if done {
			b.Scanned = at
			return true, dropped
		}
		if at < 0 {
			return false, dropped
		}
		if s := scalarOf(key); s != noScalar {
			i = b.scalar(s, at)
		} else if g, parse := textOf(b.endpoint, key); parse != nil {
			i = b.group(g, parse, at)
			if i < 0 && b.full {
				b.full, dropped = false, true
				i = skipValue(b.data, at)
			}
		} else if shapesTemplate(b.endpoint, key) {
			name := b.secret().Sum(0, key)
			if i = skipValue(b.data, at); i >= 0 {
				b.Template += b.secret().Sum(name, b.data[at:i])
			}
		} else {
			i = skipValue(b.data, at)
			if b.endpoint == Other {
				b.Unseen += max(i, at) - at
				if i < 0 {
					b.Unseen += len(b.data) - at
				}
			}
		}
		if i < 0 {
			return false, dropped
		}
	}
}

// shapesTemplate reports whether the value of a top-level key of a body has a part in how
// an engine turns messages or a prompt into tokens.
func shapesTemplate(e Endpoint, key []byte) bool {
	switch e {
	case ChatCompletions, Completions:
		switch string(key) {
		case "add_generation_prompt", "continue_final_message", "add_special_tokens", "chat_template",
			"chat_template_kwargs", "documents", "reasoning_effort", "response_format", "mm_processor_kwargs":
			return true
		}
	case Messages:
		switch string(key) {
		case "thinking", "output_config", "tool_choice":
			return true
		}
	case Responses:
		switch string(key) {
		case "reasoning", "tool_choice", "chat_template_kwargs", "previous_input_messages":
			return true
		}
	}
	return false
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// opaque counts data that is no JSON object by its length, a form with a file
// in it as one recording.
func (b *Body) opaque() {
	b.Opaque = true
	if b.endpoint == Other && bytes.HasPrefix(b.data, []byte("--")) {
		b.MediaTokens, b.CutMedium = maxAudioTokens, true
		b.form(b.data)
		return
	}
	b.Unseen = len(b.data)
}
