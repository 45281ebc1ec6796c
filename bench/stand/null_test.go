package stand

import (
	"bytes"
	"testing"
)

// Questions that come in pieces, and several at once, are answered when they are whole.
func TestNullAnswers(t *testing.T) {
	hello := spoeFrame(nil, haproxyHello, []byte("\x00\x00\x0emax-frame-size\x03\xfc\xf0\x06"))
	notify := spoeFrame(nil, haproxyNotify, []byte("\xf2\x01\x05and a message"))
	stop := spoeFrame(nil, haproxyDisconnect, []byte("\x00\x00"))
	want := "\x00\x00\x00\x08g\x00\x00\x00\x01\xf2\x01\x05"

	frames := bytes.Join([][]byte{hello, notify, stop, notify[:len(notify)-1]}, nil)
	taken, got := answerSPOE(nil, frames, nil)
	if rest := frames[taken:]; len(rest) != len(notify)-1 {
		t.Errorf("%d bytes left of an unfinished frame of %d", len(rest), len(notify)-1)
	}
	if got[4] != agentHello || !bytes.Contains(got, []byte("max-frame-size\x03\xfc\xf0\x06\x0ccapabilities")) || !bytes.Contains(got, []byte(want)) || !bytes.HasSuffix(got, []byte("\x02ok")) {
		t.Errorf("answers %q", got)
	}

	s := &null{upstreams: []string{"a", "b"}}
	question := "POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\n"
	requests := []byte(question + "abc" + question + "abc" + question)
	taken, got = answerHTTP(s, requests, nil)
	if rest := requests[taken:]; string(rest) != question {
		t.Errorf("left: %q", rest)
	}
	if string(got[len(got)-5:]) != "a\r\n\r\n" || bytes.Count(got, []byte("X-Accel-Redirect")) != 2 {
		t.Errorf("answers %q", got)
	}
}
