package templates

// Limits bounds what one SPOE frame carries, in bytes. HAProxy refuses to send
// a frame larger than its buffer less 4 bytes (3.x reports error 3, and the
// request goes on without a decision), so the parts together stay below it
// whatever a client sends.
type Limits struct {
	MaxPath    int // of the path
	MaxHeaders int // of the header block
	MaxBody    int // of the body's head, or of head and tail together
}

// frameOverhead covers everything in a frame but path, headers and body: its
// own header, the names of the arguments, id, pool, method and the two sizes.
const frameOverhead = 768

// LimitsOf derives the limits from tune.bufsize in bytes.
func LimitsOf(bufsize int) Limits {
	l := Limits{MaxPath: 256, MaxHeaders: min(bufsize/4, 16<<10)}
	l.MaxBody = bufsize - 4 - frameOverhead - l.MaxPath - l.MaxHeaders
	return l
}
