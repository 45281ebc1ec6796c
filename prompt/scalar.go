package prompt

import "bytes"

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
	}
	return noScalar
}

// scalar reads the value at i into the field of k and returns where it ends, or
// -1 if it is cut or broken.
func (b *Body) scalar(k scalarKey, i int) int {
	switch b.data[i] {
	case '"':
		end := stringEnd(b.data, i)
		if end >= 0 {
			b.assign(k, b.data[i+1:end-1:end-1], true)
		}
		return end
	case '{', '[':
		end := skipValue(b.data, i)
		if end >= 0 {
			b.assign(k, nil, false)
		}
		return end
	}
	end := literalEnd(b.data, i)
	if end >= 0 {
		b.assign(k, b.data[i:end], false)
	}
	return end
}

// assign sets the field of k from the raw bytes of a whole value; a value of the
// wrong type makes the field absent.
func (b *Body) assign(k scalarKey, raw []byte, quoted bool) {
	switch k {
	case keyModel:
		b.Model = b.plain(raw, quoted)
	case keyUser:
		b.User = b.plain(raw, quoted)
	case keyCacheSalt:
		b.CacheSalt = b.plain(raw, quoted)
	case keyMaxTokens:
		b.max = limitOf(raw, quoted)
	case keyMaxCompletionTokens:
		b.maxCompletion = limitOf(raw, quoted)
	case keyMaxOutputTokens:
		b.maxOutput = limitOf(raw, quoted)
	case keyN:
		b.N = 1
		if n, ok := integer(raw, quoted); ok && n >= 1 && n <= maxN {
			b.N = n
		}
	case keyStream:
		b.Stream = !quoted && string(raw) == "true"
	case keyPriority:
		b.Priority, b.HasPriority = integer(raw, quoted)
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

// plain returns the characters of a string's raw bytes, nil if it is no string.
func (b *Body) plain(raw []byte, quoted bool) []byte {
	if !quoted {
		return nil
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	start := len(b.arena)
	b.arena = unescape(b.arena, raw, false)
	return b.arena[start:len(b.arena):len(b.arena)]
}

func limitOf(raw []byte, quoted bool) int {
	if n, ok := integer(raw, quoted); ok && n >= 0 {
		return n
	}
	return -1
}

// integer reads a JSON number written without fraction and exponent, within
// ±maxInt.
func integer(raw []byte, quoted bool) (int, bool) {
	digits := bytes.TrimPrefix(raw, minus)
	if quoted || len(digits) == 0 || len(digits) > 10 || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	n := 0
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	if n > maxInt {
		return 0, false
	}
	if len(digits) < len(raw) {
		n = -n
	}
	return n, true
}

var minus = []byte{'-'}
