package spoa

import (
	"math/bits"
	"sync"
)

// held is what a connection reads into: many frames, or one that is large. When
// that carries lifted values it lives until its ACK is written.
type held struct {
	buf    []byte // length prefix included
	values []lifted
	class  int
}

// heldPools has a pool for each power of two, so that one frame of 4 MiB does
// not leave its buffer to a row of frames of 16 KiB.
var heldPools [33]sync.Pool

// getHeld returns a held whose buf has size bytes of any content.
func getHeld(size int) *held {
	class := bits.Len(uint(size - 1))
	h, _ := heldPools[class].Get().(*held)
	if h == nil {
		h = &held{buf: make([]byte, 1<<class), class: class}
	}
	h.buf = h.buf[:size]
	return h
}

// free gives h back. Nothing may refer to its bytes any more.
func (h *held) free() {
	clear(h.values)
	h.values = h.values[:0]
	heldPools[h.class].Put(h)
}

// find returns the lifted value of an argument, nil if there is none.
func (h *held) find(message, arg int) *lifted {
	if h == nil {
		return nil
	}
	for i := range h.values {
		if l := &h.values[i]; l.message == message && l.arg == arg {
			return l
		}
	}
	return nil
}
