package admin

import (
	"bufio"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"pointsman/record"
)

// recordingStall is how long the reader of a recording may block it.
const recordingStall = 10 * time.Second

// RecordingType is the content type of a recording: lines of JSON.
const RecordingType = "application/x-ndjson"

// record streams the requests that end from now on, for ?for=1h at most.
func (s *Server) record(ctx *fasthttp.RequestCtx) {
	most, err := time.ParseDuration(string(ctx.QueryArgs().Peek("for")))
	if err != nil || most <= 0 || most > record.Longest {
		ctx.Error("want for=DURATION of up to 168h\n", fasthttp.StatusBadRequest)
		return
	}
	stream, err := s.Recorder.Stream()
	if err != nil {
		ctx.Error(err.Error()+"\n", fasthttp.StatusTooManyRequests)
		return
	}
	ctx.SetContentType(RecordingType)
	ctx.SetConnectionClose()
	conn := ctx.Conn()
	ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
		stream.Run(func(lines []byte) error { return send(conn, w, lines) }, most)
	})
}

// send sends lines at once. The server's own time limit is for the whole answer.
func send(conn net.Conn, w *bufio.Writer, lines []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(recordingStall)); err != nil {
		return err
	}
	if _, err := w.Write(lines); err != nil {
		return err
	}
	return w.Flush()
}
