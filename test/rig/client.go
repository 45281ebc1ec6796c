package rig

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// NewClient returns a client for n requests at a time that hides nothing: no
// compression, no redirects and, without keep-alive, no silent repetition.
func NewClient(n int, keepAlive, h2 bool) *http.Client {
	tr := &http.Transport{
		DisableCompression: true, DisableKeepAlives: !keepAlive, MaxIdleConnsPerHost: n,
		Protocols: new(http.Protocols), ExpectContinueTimeout: time.Second,
	}
	tr.Protocols.SetHTTP1(!h2)
	tr.Protocols.SetUnencryptedHTTP2(h2)
	return &http.Client{Transport: tr, Timeout: 60 * time.Second}
}

// Call is a request.
type Call struct {
	Method  string // POST if empty
	Path    string // chat completions if empty
	Body    []byte
	Chunked bool
	Header  map[string]string
	Slow    time.Duration // a pause within the body, after its first 8 KiB
}

// Answer is the response to a call.
type Answer struct {
	Status int
	Header http.Header
	Engine string // that served
	Digest string // of the body that it received
	Body   []byte
	Err    error
}

// ChatPath is where chats are completed.
const ChatPath = "/v1/chat/completions"

// Request makes the HTTP request of c to host, with body in place of c's own if
// it is not nil.
func (c Call) Request(ctx context.Context, host string, body io.Reader) (*http.Request, error) {
	if body == nil {
		body = bytes.NewReader(c.Body)
	}
	method, path := c.Method, c.Path
	if method == "" {
		method = http.MethodPost
	}
	if path == "" {
		path = ChatPath
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, body)
	if err != nil {
		return nil, err
	}
	r.ContentLength, r.GetBody = int64(len(c.Body)), nil
	if c.Chunked {
		r.ContentLength = -1
	}
	r.Header.Set("Content-Type", "application/json")
	for k, v := range c.Header {
		r.Header.Set(k, v)
	}
	if v := c.Header["Host"]; v != "" {
		r.Host = v
	}
	return r, nil
}

// Do sends c to host and reads all of the answer.
func (c Call) Do(client *http.Client, host string) Answer {
	var body io.Reader
	if c.Slow > 0 {
		body = &paused{body: c.Body, pause: c.Slow}
	}
	r, err := c.Request(context.Background(), host, body)
	if err != nil {
		return Answer{Err: err}
	}
	resp, err := client.Do(r)
	if err != nil {
		return Answer{Err: err}
	}
	defer resp.Body.Close()
	a := Answer{Status: resp.StatusCode, Header: resp.Header, Engine: resp.Header.Get("X-Engine"), Digest: resp.Header.Get("X-Body-Sha256")}
	a.Body, a.Err = io.ReadAll(resp.Body)
	return a
}

// paused is a body that comes with a pause within.
type paused struct {
	body  []byte
	read  int
	pause time.Duration
}

func (p *paused) Read(b []byte) (int, error) {
	const first = 8 << 10
	end := len(p.body)
	switch {
	case p.read == end:
		return 0, io.EOF
	case p.read < first:
		end = min(first, end)
	case p.read == first:
		time.Sleep(p.pause)
	}
	n := copy(b, p.body[p.read:end])
	p.read += n
	return n, nil
}

// Check returns what is wrong with the answer to c, which an engine should have
// served: status 200, the body received whole, and the stream, if it is one,
// complete.
func (c Call) Check(a Answer) error {
	switch want := digest(c.Body); {
	case a.Err != nil:
		return a.Err
	case a.Status != http.StatusOK:
		return fmt.Errorf("status %d of %q: %.200s", a.Status, a.Engine, a.Body)
	case a.Digest != want:
		return fmt.Errorf("engine %s received a body of digest %s, want %s", a.Engine, a.Digest, want)
	case strings.Contains(a.Header.Get("X-Seen-Headers"), "x-pointsman"):
		return fmt.Errorf("the engine saw %s", a.Header.Get("X-Seen-Headers"))
	case strings.HasPrefix(a.Header.Get("Content-Type"), "text/event-stream"):
		if !bytes.HasSuffix(a.Body, []byte("data: [DONE]\n\n")) {
			return errors.New("the stream has no end")
		}
	case !json.Valid(a.Body):
		return fmt.Errorf("the answer is no JSON: %.200q", a.Body)
	}
	return nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// filler is text that bodies take slices of; it needs no escape in JSON.
var filler = func() string {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 4<<20)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+ "[r.IntN(64)]
	}
	return string(b)
}()

// Fill returns n bytes of text.
func Fill(n, from int) string { return filler[from%(len(filler)-n):][:n] }

// Chat is the body of a chat of about size bytes, whose model is the first
// field. Beyond 64 KiB most of it is an image, as in real requests of such
// length, and cheap for the engine to read.
func Chat(model string, size, tokens int, stream bool, from int) []byte {
	head := fmt.Sprintf(`{"model":%q,"max_tokens":%d,"stream":%t,"messages":[{"role":"user","content":`, model, tokens, stream)
	pad := max(0, size-len(head)-len(`""}]}`))
	if pad <= 64<<10 {
		return []byte(head + `"` + Fill(pad, from) + `"}]}`)
	}
	return []byte(head + `[{"type":"text","text":"what is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
		strings.ReplaceAll(Fill(pad-112, from), " ", "/") + `"}}]}]}`)
}

// names of the pool and the model of sites with one pool.
const (
	Pool  = "llama"
	Model = "my-llama"
)

// Small is a request with a short body.
func Small(stream bool) Call { return Call{Body: Chat(Model, 400, 8, stream, 7)} }

// Of is a small request of a band.
func Of(band string) Call {
	c := Small(true)
	c.Header = map[string]string{"X-Band": band}
	return c
}

// Held is a request that its engine holds until it releases it.
func Held() Call {
	return Call{Body: Chat(Model, 400, 127, true, 0), Header: map[string]string{"X-Hold": "1"}}
}
