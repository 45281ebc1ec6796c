package prompt

// Turns appends to dst the hash of the canonical stream up to the end of each
// message, and of the whole stream as the last; of a body that is cut only the
// messages that are certain. Equal hashes mean equal prompts up to there. It
// is like Blocks in all else.
func (b *Body) Turns(dst []uint64, seed uint64) []uint64 {
	b.digest.Reset(b.secret(), seed)
	some := false
	for g := range b.groups {
		group := &b.groups[g]
		if group.hold > group.from {
			b.digest.Write(b.separator(tagGroups + byte(g)))
		}
		for i := group.from; i < group.hold; i++ {
			s := &b.spans[i]
			if s.tag == tagRole && i > group.from {
				dst = append(dst, b.digest.Sum64())
			}
			b.digest.Write(b.separator(s.tag))
			b.digest.Write(b.bytes(s))
			some = true
		}
		if group.cut {
			return dst
		}
	}
	if some {
		dst = append(dst, b.digest.Sum64())
	}
	return dst
}
