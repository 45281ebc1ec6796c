package spoa

import (
	"math/bits"
	"sync"
)

// buffer is memory that a connection reads into: many small frames, or one
// frame that has it to itself. In the latter case it also holds what the frame
// decodes to, and lives until no message of the frame is needed any more.
type buffer struct {
	bytes    []byte // length prefix included
	messages []message
	args     []argument // of all messages
	class    int
}

// minClass is the class of the smallest buffers: 1 KiB.
const minClass = 10

// keepArgs is how many arguments a buffer may keep room for between frames.
const keepArgs = 256

// bufferPools has a pool for each power of two, so that one frame of 4 MiB does
// not leave its buffer to a series of frames of 16 KiB.
var bufferPools [33]sync.Pool

// getBuffer returns a buffer of size bytes of any content.
func getBuffer(size int) *buffer {
	class := max(bits.Len(uint(size-1)), minClass)
	b, _ := bufferPools[class].Get().(*buffer)
	if b == nil {
		b = &buffer{bytes: make([]byte, 1<<class), class: class}
	}
	b.bytes = b.bytes[:size]
	return b
}

// free gives b back. Nothing may refer to its bytes any more.
func (b *buffer) free() {
	b.reset()
	if cap(b.args) > keepArgs {
		b.args = nil
	}
	bufferPools[b.class].Put(b)
}

// reset forgets what the last frame decoded to.
func (b *buffer) reset() { b.messages, b.args = b.messages[:0], b.args[:0] }
