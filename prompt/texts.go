package prompt

import "encoding/binary"

// texts records a prompt: a string, token ids, an object with text in it, or an
// array of these.
func (b *Body) texts(i int) int { return b.textsAt(i, 0) }

func (b *Body) textsAt(i, depth int) int {
	switch c := b.data[i]; {
	case c == '"':
		return b.text(i, tagText)
	case c == '{':
		return b.item(i, 1, false)
	case c != '[' || depth > 1:
		return b.skip(i)
	}
	for first := true; ; first = false {
		at, done := step(b.data, i, first, ']')
		if done || at < 0 {
			return b.checked(at)
		}
		if isDigit(b.data[at]) {
			i = b.ids(at)
		} else {
			i = b.textsAt(at, depth+1)
		}
		if i < 0 {
			return -1
		}
	}
}

// ids records the run of numbers that starts at i, in an array, as token ids of
// four bytes each. Anything else than a token id is left out.
func (b *Body) ids(i int) int {
	off := len(b.arena)
	b.arena = append(b.arena, 0xFF, 0xFF)
	end := -1
	for {
		e := literalEnd(b.data, i)
		if e < 0 {
			end = -1
			break
		}
		end = e
		if id, ok := integer(b.data[i:e]); ok {
			b.arena = binary.LittleEndian.AppendUint32(b.arena, uint32(id))
		}
		at, done := step(b.data, e, false, ']')
		if done || at < 0 || !isDigit(b.data[at]) {
			break // the caller steps again and sees why
		}
		i = at
	}
	if !b.add(span{off: int32(off), n: int32(len(b.arena) - off), tag: tagIDs, arena: true}) {
		return -1
	}
	return b.checked(end)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
