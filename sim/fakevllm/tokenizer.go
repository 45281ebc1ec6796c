package fakevllm

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// The tokenizer splits text into pieces of four ASCII bytes, or of three other
// bytes, and encodes the piece itself in the token id. So ids are equal exactly
// if the texts are, and a text and a longer text that begins with it have the
// same tokens, except for the last one.
//
// Ids have 29 bits: 0..firstPiece-1 are special, then come the pieces of one to
// three bytes, then those of four ASCII bytes.
const (
	tokenStart uint32 = 1 // a message begins; its role and content follow
	tokenEnd   uint32 = 2 // a message ends
	tokenMedia uint32 = 3 // an image or other media; its digest follows

	firstPiece uint32 = 1 << 24
	asciiPiece uint32 = 1 << 28
	tokenLimit uint32 = 1 << 29

	// mediaTokens is the number of tokens of an image or other media.
	mediaTokens = 256
)

var specialText = map[uint32]string{tokenStart: "<|start|>", tokenEnd: "<|end|>", tokenMedia: "<|media|>"}

// appendTokens appends the token ids of text to dst.
func appendTokens(dst []uint32, text string) []uint32 {
	for len(text) > 0 {
		if len(text) >= 4 {
			w := uint32(text[0]) | uint32(text[1])<<8 | uint32(text[2])<<16 | uint32(text[3])<<24
			if w&0x80808080 == 0 {
				dst = append(dst, asciiPiece|w&0x7f|w>>8&0x7f<<7|w>>16&0x7f<<14|w>>24<<21)
				text = text[4:]
				continue
			}
		}
		n := min(3, len(text))
		id := uint32(n) * firstPiece
		for i := range n {
			id |= uint32(text[i]) << (8 * i)
		}
		dst = append(dst, id)
		text = text[n:]
	}
	return dst
}

// appendMedia appends the tokens of an image or other media.
func appendMedia(dst []uint32, source []byte) []uint32 {
	digest := xxhash.Sum64(source)
	dst = append(dst, tokenMedia)
	for i := range mediaTokens - 1 {
		dst = append(dst, 16+uint32(digest>>(8*(i%6)))&0xffff)
	}
	return dst
}

// appendText appends the text of a token to dst; ids that no text has are
// ignored.
func appendText(dst []byte, id uint32) []byte {
	switch {
	case id >= tokenLimit:
		return dst
	case id >= asciiPiece:
		return append(dst, byte(id&0x7f), byte(id>>7&0x7f), byte(id>>14&0x7f), byte(id>>21&0x7f))
	case id >= firstPiece:
		for i := range min(id/firstPiece, 3) {
			dst = append(dst, byte(id>>(8*i)))
		}
		return dst
	}
	return append(dst, specialText[id]...)
}

// extendKeys appends the chained keys of the full blocks of tokens to keys, which
// has those of the first ones. salt separates what must not share a cache, such
// as adapters and tenants.
func extendKeys(keys []uint64, tokens []uint32, blockSize int, salt string) []uint64 {
	buf := make([]byte, 8+4*blockSize)
	parent := xxhash.Sum64String(salt)
	if n := len(keys); n > 0 {
		parent = keys[n-1]
	}
	for tokens = tokens[len(keys)*blockSize:]; len(tokens) >= blockSize; tokens = tokens[blockSize:] {
		binary.LittleEndian.PutUint64(buf, parent)
		for i, t := range tokens[:blockSize] {
			binary.LittleEndian.PutUint32(buf[8+4*i:], t)
		}
		parent = xxhash.Sum64(buf)
		keys = append(keys, parent)
	}
	return keys
}

// digest returns a hash of all tokens.
func digest(tokens []uint32) uint64 {
	h := xxhash.New()
	var buf [1024]byte
	for len(tokens) > 0 {
		n := min(len(tokens), len(buf)/4)
		for i, t := range tokens[:n] {
			binary.LittleEndian.PutUint32(buf[4*i:], t)
		}
		h.Write(buf[:4*n])
		tokens = tokens[n:]
	}
	return h.Sum64()
}
