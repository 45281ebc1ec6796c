package metrics

import (
	"strings"
	"testing"
)

var replies = []struct {
	text, body string
	status     int
	last       bool
}{
	{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", 200, false},
	{"HTTP/1.1 200 \r\ncontent-length:0\r\n\r\n", "", 200, false},
	{"HTTP/1.1 200 OK\r\nDate: now\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\nA;x=y\r\nlo, there.\r\n0\r\n\r\n", "hello, there.", 200, false},
	{"HTTP/1.1 200 OK\r\nTRANSFER-ENCODING: Chunked\r\n\r\n1\r\na\r\n0\r\nx: y\r\nz: 1\r\n\r\n", "a", 200, false},
	{"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 1\r\n\r\nx", "x", 200, true},
	{"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", "x", 200, true},
	{"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", "x", 200, false},
	{"HTTP/1.1 204 No Content\r\n\r\n", "", 204, false},
	{"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno", "no", 503, false},
	{"HTTP/1.1 200 OK\r\n\r\nup to the end", "up to the end", 200, true},
}

// An answer parses alike however it is split, and is complete with its last byte and
// not before.
func TestParsesPartialAnswers(t *testing.T) {
	for _, c := range replies {
		for _, step := range []int{1, 2, 7, 1000} {
			var r reply
			b := []byte(c.text)
			untilEnd := strings.HasSuffix(c.text, "end")
			for n := 0; ; {
				n = min(len(b), n+step)
				done, err := r.parse(b[:n], false)
				if err != nil {
					t.Fatalf("%q after %d bytes: %v", c.text, n, err)
				}
				if n == len(b) && untilEnd {
					done, err = r.parse(b, true)
				}
				if done != (n == len(b)) || err != nil {
					t.Fatalf("%q after %d bytes: complete %v, %v", c.text, n, done, err)
				}
				if done {
					break
				}
			}
			if body := string(b[r.from:r.to]); body != c.body || r.status != c.status || r.closes != c.last || r.end != len(b) {
				t.Errorf("%q by %d: %q %+v", c.text, step, body, r)
			}
		}
	}
}

func TestRejectsMalformedAnswers(t *testing.T) {
	for _, text := range []string{
		"nonsense\r\n\r\n",
		"HTTP/2.0 200 OK\r\n\r\n",
		"HTTP/1.1 20x OK\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff0\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1", maxReplyHead+1),
		strings.Repeat("HTTP/1.1 200 OK ", maxReplyHead/16+1),
	} {
		var r reply
		if done, err := r.parse([]byte(text), false); err == nil {
			t.Errorf("%.60q: complete %v", text, done)
		}
	}
	for _, text := range []string{"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"} {
		var r reply
		if done, err := r.parse([]byte(text), true); err == nil {
			t.Errorf("%q and no more: complete %v", text, done)
		}
	}
}

func FuzzReply(f *testing.F) {
	for _, c := range replies {
		f.Add([]byte(c.text), 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, step int) {
		step = max(1, step%100)
		var whole, parts reply
		a, b := []byte(string(text)), []byte(string(text))
		wholeDone, wholeErr := whole.parse(a, true)
		for n := 0; n < len(b); {
			n = min(len(b), n+step)
			done, err := parts.parse(b[:n], n == len(b))
			if parts.from > parts.to || parts.to > parts.end || parts.end > n {
				t.Fatalf("%+v of %d bytes", parts, n)
			}
			if done {
				if wholeErr != nil || !wholeDone || string(a[whole.from:whole.to]) != string(b[parts.from:parts.to]) {
					t.Fatalf("%+v in parts, %+v and %v at once", parts, whole, wholeErr)
				}
				return
			}
			if err != nil {
				return
			}
		}
	})
}
