package record

import (
	"log/slog"
	"time"
)

// flushAfter is how long lines wait for others before they are written, and
// flushBytes is for how many bytes of them. After an error, requests are dropped
// until the next try.
const (
	flushAfter = 2 * time.Second
	flushBytes = 1 << 20
)

// writer writes the requests of a queue to files. It belongs to one goroutine.
type writer struct {
	*queue
	file
	log     *slog.Logger
	salt    salt
	lines   []byte
	waiting int  // requests in lines
	failing bool // the last write failed, and that was logged
	paused  bool // until the next tick
}

// File records to files until stop is called, which waits until all is written. An
// error is logged once, and what cannot be written is dropped.
func (r *Recorder) File(o FileOptions, log *slog.Logger) (stop func()) {
	q, _ := r.open(false) // only streams are refused
	w := &writer{queue: q, file: file{FileOptions: o, create: create}, log: log}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.run()
	}()
	return func() {
		q.close()
		<-done
	}
}

// run writes until the queue is closed.
func (w *writer) run() {
	w.report(probe(w.Path))
	w.paused = false
	tick := time.NewTicker(flushAfter)
	defer tick.Stop()
	for {
		select {
		case e := <-w.entries:
			w.add(e)
		case <-tick.C:
			w.paused = false
			w.flush()
		case <-w.isClosed:
			w.paused = false
			for {
				select {
				case e := <-w.entries:
					w.add(e)
					continue
				default:
				}
				break
			}
			w.flush()
			w.report(w.file.close())
			return
		}
	}
}

// add appends the line of e to those that wait. Its file is open by then: each has a
// salt of its own.
func (w *writer) add(e *entry) {
	defer w.release(e)
	if w.waiting == 0 && (w.out == nil || w.isFull()) && !w.paused {
		if err := w.next(); err != nil {
			w.report(err)
		} else {
			w.salt = newSalt()
		}
	}
	if w.paused || w.out == nil {
		w.recorder.dropped.Inc()
		return
	}
	w.lines = w.salt.appendLine(w.lines, e, w.recorder.epoch)
	w.waiting++
	if len(w.lines) >= flushBytes {
		w.flush()
	}
}

// flush writes the lines that wait, or drops them.
func (w *writer) flush() {
	if w.waiting == 0 {
		return
	}
	var err error
	if w.size == 0 {
		err = w.write(header(w.recorder.decider))
	}
	if err == nil {
		err = w.write(w.lines)
	}
	if w.report(err); err == nil {
		w.recorder.recorded.Add(w.waiting)
	} else {
		w.recorder.dropped.Add(w.waiting)
	}
	w.lines, w.waiting = w.lines[:0], 0
}

// report logs err, unless it continues, or that it is over.
func (w *writer) report(err error) {
	switch {
	case err != nil:
		w.recorder.failed.Inc()
		if w.paused = true; !w.failing {
			w.log.Error("cannot record traffic; requests are served as before", "file", w.Path, "error", err)
		}
	case w.failing:
		w.log.Info("recording traffic again", "file", w.Path)
	}
	w.failing = err != nil
}
