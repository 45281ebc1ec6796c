package prompt

import (
	"encoding/binary"
)

// The prompt tokens of media are estimates, for the size of an image is not in
// its address and not cheaply in its bytes.
//
//   - An image counts 765, which OpenAI's published tile rule gives for
//     1024×1024 (85 + 4·170). LLaVA-1.5 takes 576, Qwen2-VL 1,369 at that size.
//   - A recording counts a token per 40 ms as in Qwen2-Audio, taken as 16-bit
//     mono at 16 kHz (32,000 bytes/s), within 25 (1 s) and 750 (30 s, the window
//     of Whisper's encoder). By address it counts 250 (10 s).
//   - A video counts as eight images.
const (
	imageTokens       = 765
	videoTokens       = 8 * imageTokens
	minAudioTokens    = 25
	maxAudioTokens    = 750
	remoteAudioTokens = 250
	audioTokenBase64  = 32000 * 40 / 1000 * 4 / 3 // characters of base64 per token
)

// A medium is what a media value holds.
type medium uint8

const (
	image medium = iota // also a file, as one page
	video
	audio       // in the body
	remoteAudio // by address
)

func mediaOf(key []byte) medium {
	switch string(key) {
	case "input_audio":
		return audio
	case "audio_url":
		return remoteAudio
	case "video_url":
		return video
	}
	return image
}

// tokens estimates the prompt tokens of a medium of n bytes.
func (m medium) tokens(n int) int32 {
	switch m {
	case video:
		return videoTokens
	case audio:
		return int32(min(max(n/audioTokenBase64, minAudioTokens), maxAudioTokens))
	case remoteAudio:
		return remoteAudioTokens
	}
	return imageTokens
}

// media records the image or recording at i, a string or an object that holds
// one, by a digest of its raw bytes. A cut one counts its tokens, but has no
// digest and so no place in the stream.
func (b *Body) media(m medium, i int) int {
	if b.data[i] == '"' {
		return b.medium(m, i)
	}
	if b.data[i] != '{' {
		return b.skip(i)
	}
	from := len(b.spans)
	for first := true; ; first = false {
		key, at, done := b.member(i, first)
		if done || at < 0 {
			return b.checked(at)
		}
		switch string(key) {
		case "url", "data", "file_data", "file_id":
			if b.data[at] == '"' {
				b.spans = b.spans[:from]
				i = b.medium(m, at)
				break
			}
			i = b.skip(at)
		default:
			i = b.skip(at)
		}
		if i < 0 {
			return -1
		}
	}
}

// medium records the string at i.
func (b *Body) medium(m medium, i int) int {
	end := stringEnd(b.data, i)
	if end < 0 {
		b.CutMedium = true
		hold := len(b.spans)
		if b.add(span{media: m.tokens(len(b.data) - i), tag: tagMedia}) {
			b.hold = hold
		}
		return -1
	}
	raw := b.data[i+1 : end-1]
	off := len(b.arena)
	b.arena = binary.LittleEndian.AppendUint64(b.arena, b.secret().Sum(0, raw))
	if !b.add(span{off: int32(off), n: 8, media: m.tokens(len(raw)), tag: tagMedia, arena: true}) {
		return -1
	}
	return end
}
