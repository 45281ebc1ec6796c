package record

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// streamEvery is how often a stream sends what it has, or an empty line: that shows
// whether anybody still reads.
const streamEvery = time.Second

// Longest is the longest that one over a connection may take.
const Longest = 7 * 24 * time.Hour

// Stream is a recording that somebody reads over a connection.
type Stream struct{ queue *queue }

// Stream begins a recording that Run sends, unless there are too many.
func (r *Recorder) Stream() (*Stream, error) {
	q, err := r.open(true)
	if err != nil {
		return nil, err
	}
	return &Stream{q}, nil
}

// Run sends lines by send for so long, or until the recorder is closed or send
// returns an error. It ends the recording.
func (s *Stream) Run(send func([]byte) error, most time.Duration) {
	q := s.queue
	defer q.drop()
	end := time.NewTimer(most)
	defer end.Stop()
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	salt, lines, waiting := newSalt(), header(q.recorder.decider), 0
	flush := func() bool {
		if len(lines) == 0 {
			lines = append(lines, '\n')
		}
		if send(lines) != nil {
			q.recorder.dropped.Add(waiting)
			return false
		}
		q.recorder.recorded.Add(waiting)
		lines, waiting = lines[:0], 0
		return true
	}
	if !flush() {
		return
	}
	for {
		select {
		case e := <-q.entries:
			lines = salt.appendLine(lines, e, q.recorder.epoch)
			waiting++
			q.release(e)
			if len(lines) >= flushBytes && !flush() {
				return
			}
		case <-tick.C:
			if !flush() {
				return
			}
		case <-end.C:
			flush()
			return
		case <-q.isClosed:
			flush()
			return
		}
	}
}

// drop closes the queue and drops what waits in it.
func (q *queue) drop() {
	q.close()
	for {
		select {
		case e := <-q.entries:
			q.release(e)
			q.recorder.dropped.Inc()
		default:
			return
		}
	}
}

// maxStreamLine bounds a line of a stream, in bytes: one with all block keys that a
// body of 64 MiB has.
const maxStreamLine = 4 << 20

// Save writes what a stream sends to a new file, compressed, and returns how many
// requests there were. What was written until an error can be read. An end of the
// stream is no error.
func Save(path string, stream io.Reader) (requests int, err error) {
	f := file{FileOptions: FileOptions{Path: path}, create: create}
	if err := f.next(); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return 0, fmt.Errorf("%s exists already: want the name of a new file", path)
		}
		return 0, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	in := bufio.NewReaderSize(stream, 64<<10)
	var lines, part []byte
	waiting, lineNumber := 0, 0
	flushed := time.Now()
	flush := func() error {
		if len(lines) == 0 {
			return nil
		}
		if err := f.write(lines); err != nil {
			return err
		}
		requests += waiting
		lines, waiting, flushed = lines[:0], 0, time.Now()
		return nil
	}
	for {
		piece, readErr := in.ReadSlice('\n')
		part = append(part, piece...)
		switch {
		case errors.Is(readErr, bufio.ErrBufferFull) && len(part) <= maxStreamLine:
			continue
		case readErr != nil: // the line is not whole
			if !errors.Is(readErr, io.EOF) && !errors.Is(readErr, io.ErrUnexpectedEOF) {
				err = readErr
			}
			err = errors.Join(err, flush())
			return requests, err
		}
		if len(part) > 1 {
			lines = append(lines, part...)
			if lineNumber++; lineNumber > 1 {
				waiting++ // the first is the header
			}
		}
		part = part[:0]
		if len(lines) >= flushBytes || time.Since(flushed) >= flushAfter {
			if err := flush(); err != nil {
				return requests, err
			}
		}
	}
}
