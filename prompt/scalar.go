package prompt

import (
	"bytes"
	"math"
)

// scalarKey is a top-level key whose value is a string, number or boolean that
// routing wants.
type scalarKey uint8

const (
	noScalar scalarKey = iota
	keyModel
	keyUser
	keyCacheSalt
	keyMaxTokens
	keyMaxCompletionTokens
	keyMaxOutputTokens
	keyN
	keyStream
	keyPriority
	keyConversation
	keyPromptCacheKey
	keyPreviousResponse
	keyMetadata
	scalarKeys
)

// maxN is vLLM's own ceiling for n; more is nonsense.
const maxN = 16384

// maxInt bounds every number, so that sums and products of a few stay sane.
const maxInt = 1<<31 - 1

func scalarOf(key []byte) scalarKey {
	switch string(key) {
	case "model":
		return keyModel
	case "user":
		return keyUser
	case "cache_salt":
		return keyCacheSalt
	case "max_tokens":
		return keyMaxTokens
	case "max_completion_tokens":
		return keyMaxCompletionTokens
	case "max_output_tokens":
		return keyMaxOutputTokens
	case "n":
		return keyN
	case "stream":
		return keyStream
	case "priority":
		return keyPriority
	case "conversation":
		return keyConversation
	case "prompt_cache_key":
		return keyPromptCacheKey
	case "previous_response_id":
		return keyPreviousResponse
	case "metadata":
		return keyMetadata
	}
	return noScalar
}

// scalar reads the value at i into the field of k and returns where it ends, or
// -1 if it is cut or broken.
func (b *Body) scalar(k scalarKey, i int) int {
	if b.data[i] == '{' && (k == keyMetadata || k == keyConversation) {
		return b.named(k, i)
	}
	end := skipValue(b.data, i)
	if end >= 0 {
		b.assign(k, b.data[i:end])
	}
	return end
}

// named reads from the object at i what names a conversation.
func (b *Body) named(k scalarKey, i int) int {
	for first := true; ; first = false {
		key, at, done := b.member(i, first)
		if done || at < 0 {
			return at
		}
		var to *[]byte
		switch {
		case k == keyConversation && string(key) == "id":
			to = &b.Conversation
		case k == keyMetadata && string(key) == "session_id":
			to = &b.MetadataSession
		case k == keyMetadata && string(key) == "user_id":
			to = &b.MetadataUser
		}
		if i = skipValue(b.data, at); i < 0 {
			return -1
		}
		if to != nil {
			*to = b.plain(b.data[at:i])
		}
	}
}

// assign sets the field of k from the whole value token; one of the wrong type
// makes the field absent.
func (b *Body) assign(k scalarKey, token []byte) {
	switch k {
	case keyModel:
		model := b.plain(token)
		b.Ambiguous = b.Ambiguous || b.modelSeen && !bytes.Equal(model, b.Model)
		b.Model, b.modelSeen = model, true
	case keyUser:
		b.User = b.plain(token)
	case keyCacheSalt:
		b.CacheSalt = b.plain(token)
	case keyMaxTokens:
		b.max = atLeast(0, number(token), -1)
	case keyMaxCompletionTokens:
		b.maxCompletion = atLeast(0, number(token), -1)
	case keyMaxOutputTokens:
		b.maxOutput = atLeast(0, number(token), -1)
	case keyN:
		if b.N = atLeast(1, number(token), 1); b.N > maxN {
			b.N = 1
		}
	case keyStream:
		b.Stream = string(token) == "true"
	case keyConversation:
		b.Conversation = b.plain(token)
	case keyPromptCacheKey:
		b.PromptCacheKey = b.plain(token)
	case keyPreviousResponse:
		b.PreviousResponse = b.plain(token)
	case keyPriority:
		b.Priority, b.HasPriority = integer(number(token))
	}
	switch {
	case b.endpoint == Responses:
		b.MaxTokens = b.maxOutput
	case b.maxCompletion >= 0:
		b.MaxTokens = b.maxCompletion
	default:
		b.MaxTokens = b.max
	}
}

// plain returns the characters of the string token, nil if it is not a string.
func (b *Body) plain(token []byte) []byte {
	if token[0] != '"' {
		return nil
	}
	end := len(token) - 1
	if bytes.IndexByte(token, '\\') < 0 {
		return token[1:end:end]
	}
	start := len(b.arena)
	b.arena, _ = unescape(b.arena, token[1:], false)
	return b.arena[start:len(b.arena):len(b.arena)]
}

// atLeast returns the integer of token, or absent if it is none or below low.
func atLeast(low int, token []byte, absent int) int {
	if n, ok := integer(token); ok && n >= low {
		return n
	}
	return absent
}

// number returns the number in token, which may be a string: engines take one.
func number(token []byte) []byte {
	if token[0] != '"' || len(token) < 2 {
		return token
	}
	return bytes.TrimSpace(token[1 : len(token)-1])
}

// integer reads a JSON number whose value is an integer within ±maxInt, however
// it is written: 100000, 1e5 and 100000.0 are equal.
func integer(token []byte) (int, bool) {
	p := bytes.TrimPrefix(token, minus)
	if len(p) == 0 || !isDigit(p[0]) || p[0] == '0' && len(p) > 1 && isDigit(p[1]) {
		return 0, false
	}
	n, scale := 0, 0 // the value is n·10^scale
	i, fraction := 0, false
	for ; i < len(p) && (isDigit(p[i]) || p[i] == '.' && !fraction); i++ {
		if p[i] == '.' {
			fraction = true
			continue
		}
		if n > math.MaxInt/100 {
			return 0, false
		}
		n = n*10 + int(p[i]-'0')
		if fraction {
			scale--
		}
	}
	if p[i-1] == '.' {
		return 0, false
	}
	if i < len(p) {
		exponent, ok := exponentOf(p[i:])
		if !ok {
			return 0, false
		}
		scale += exponent
	}
	for ; scale < 0 && n%10 == 0 && n > 0; scale++ {
		n /= 10
	}
	for ; scale > 0 && n > 0 && n <= maxInt; scale-- {
		n *= 10
	}
	if n > maxInt || n > 0 && scale < 0 {
		return 0, false
	}
	if len(p) < len(token) {
		n = -n
	}
	return n, true
}

// exponentOf reads an exponent such as e+05.
func exponentOf(p []byte) (int, bool) {
	if p[0] != 'e' && p[0] != 'E' {
		return 0, false
	}
	digits := p[1:]
	if len(digits) > 0 && (digits[0] == '+' || digits[0] == '-') {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 4 {
		return 0, false
	}
	n := 0
	for _, c := range digits {
		if !isDigit(c) {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	if p[1] == '-' {
		n = -n
	}
	return n, true
}

var minus = []byte{'-'}
