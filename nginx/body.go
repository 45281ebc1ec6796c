package nginx

import (
	"io"

	"github.com/valyala/fasthttp"
)

// readBody reads the whole body. It stores the first limit bytes in s.head and
// returns the tail of a longer body. size is the length of the whole body.
func (a *Agent) readBody(ctx *fasthttp.RequestCtx, s *scratch, limit int) (size int, tail []byte, err error) {
	s.head = s.head[:0]
	body := ctx.Request.BodyStream()
	if body == nil {
		return 0, nil, nil
	}
	want := limit
	if n := ctx.Request.Header.ContentLength(); n >= 0 {
		want = min(want, n)
	}
	want = a.borrow(s, want)
	if cap(s.head) < want {
		s.head = make([]byte, 0, want)
	}
	n, err := io.ReadFull(body, s.head[:want])
	s.head = s.head[:n]
	switch err {
	case nil:
	case io.EOF, io.ErrUnexpectedEOF:
		if expected := ctx.Request.Header.ContentLength(); expected >= 0 && n < expected {
			return n, nil, io.ErrUnexpectedEOF // nginx broke off because its client left
		}
		return n, nil, nil
	default:
		return n, nil, err
	}
	return a.readTail(body, s, n)
}

// readTail reads the rest of the body after the head and keeps only its end.
func (a *Agent) readTail(body io.Reader, s *scratch, size int) (int, []byte, error) {
	n, err := io.ReadFull(body, s.one[:])
	if n == 0 {
		if err == io.EOF {
			err = nil
		}
		return size, nil, err
	}
	if s.tail == nil {
		s.tail = make([]byte, 2*tailSize)
	}
	kept := copy(s.tail, s.one[:])
	size++
	for {
		n, err := body.Read(s.tail[kept:])
		kept, size = kept+n, size+n
		if err == io.EOF {
			return size, s.tail[:kept], nil
		}
		if err != nil {
			return size, nil, err
		}
		if kept == len(s.tail) {
			kept = copy(s.tail, s.tail[tailSize:])
		}
	}
}

// borrow returns how many of the wanted bytes of a body may be kept: fewer when the
// bodies together reach maxMemory.
func (a *Agent) borrow(s *scratch, want int) int {
	s.borrowed = 0
	for _, less := range [...]int{want, smallHead, leastHead} {
		n := int64(min(want, less))
		if a.memory.Add(n) <= maxMemory || less == leastHead {
			s.borrowed = n
			if n < int64(want) {
				a.clipped.Inc()
			}
			return int(n)
		}
		a.memory.Add(-n)
	}
	return 0
}

// release returns the borrowed memory.
func (a *Agent) release(s *scratch) {
	a.memory.Add(-s.borrowed)
	s.borrowed = 0
	if cap(s.head) > keptHead {
		s.head = nil
	}
}
