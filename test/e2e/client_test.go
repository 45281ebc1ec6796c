package e2e

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

// newClient returns a client for n requests at a time that hides nothing: no
// compression, no redirects and, without keep-alive, no silent repetition.
func newClient(n int, keepAlive, h2 bool) *http.Client {
	tr := &http.Transport{
		DisableCompression: true, DisableKeepAlives: !keepAlive, MaxIdleConnsPerHost: n,
		Protocols: new(http.Protocols), ExpectContinueTimeout: time.Second,
	}
	tr.Protocols.SetHTTP1(!h2)
	tr.Protocols.SetUnencryptedHTTP2(h2)
	return &http.Client{Transport: tr, Timeout: 60 * time.Second}
}

// call is a request.
type call struct {
	method  string // POST if empty
	path    string // chat completions if empty
	body    []byte
	chunked bool
	header  map[string]string
}

// answer is the response to a call.
type answer struct {
	status int
	header http.Header
	engine string // that served
	digest string // of the body that it received
	body   []byte
	err    error
}

const chatPath = "/v1/chat/completions"

// request makes the HTTP request of c to host, with body in place of c's own if
// it is not nil.
func (c call) request(ctx context.Context, host string, body io.Reader) (*http.Request, error) {
	if body == nil {
		body = bytes.NewReader(c.body)
	}
	method, path := c.method, c.path
	if method == "" {
		method = http.MethodPost
	}
	if path == "" {
		path = chatPath
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, body)
	if err != nil {
		return nil, err
	}
	r.ContentLength, r.GetBody = int64(len(c.body)), nil
	if c.chunked {
		r.ContentLength = -1
	}
	r.Header.Set("Content-Type", "application/json")
	for k, v := range c.header {
		r.Header.Set(k, v)
	}
	return r, nil
}

// do sends c to host and reads all of the answer.
func (c call) do(client *http.Client, host string) answer {
	r, err := c.request(context.Background(), host, nil)
	if err != nil {
		return answer{err: err}
	}
	resp, err := client.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header, engine: resp.Header.Get("X-Engine"), digest: resp.Header.Get("X-Body-Sha256")}
	a.body, a.err = io.ReadAll(resp.Body)
	return a
}

// check returns what is wrong with the answer to c, which an engine should have
// served: status 200, the body received whole, and the stream, if it is one,
// complete.
func (c call) check(a answer) error {
	switch want := digest(c.body); {
	case a.err != nil:
		return a.err
	case a.status != http.StatusOK:
		return fmt.Errorf("status %d of %q: %.200s", a.status, a.engine, a.body)
	case a.digest != want:
		return fmt.Errorf("engine %s received a body of digest %s, want %s", a.engine, a.digest, want)
	case strings.Contains(a.header.Get("X-Seen-Headers"), "x-pointsman"):
		return fmt.Errorf("the engine saw %s", a.header.Get("X-Seen-Headers"))
	case strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream"):
		if !bytes.HasSuffix(a.body, []byte("data: [DONE]\n\n")) {
			return errors.New("the stream has no end")
		}
	case !json.Valid(a.body):
		return fmt.Errorf("the answer is no JSON: %.200q", a.body)
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

// fill returns n bytes of text.
func fill(n, from int) string { return filler[from%(len(filler)-n):][:n] }

// chat is the body of a chat of about size bytes, whose model is the first
// field. Beyond 64 KiB most of it is an image, as in real requests of such
// length, and cheap for the engine to read.
func chat(model string, size, tokens int, stream bool, from int) []byte {
	head := fmt.Sprintf(`{"model":%q,"max_tokens":%d,"stream":%t,"messages":[{"role":"user","content":`, model, tokens, stream)
	pad := max(0, size-len(head)-len(`""}]}`))
	if pad <= 64<<10 {
		return []byte(head + `"` + fill(pad, from) + `"}]}`)
	}
	return []byte(head + `[{"type":"text","text":"what is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
		strings.ReplaceAll(fill(pad-112, from), " ", "/") + `"}}]}]}`)
}

// names of the pool and the model of sites with one pool.
const (
	pool  = "llama"
	model = "my-llama"
)

// small is a request with a short body.
func small(stream bool) call { return call{body: chat(model, 400, 8, stream, 7)} }

// of is a small request of a band.
func of(band string) call {
	c := small(true)
	c.header = map[string]string{"X-Band": band}
	return c
}

// held is a request that its engine holds until it releases it.
func held() call {
	return call{body: chat(model, 400, 127, true, 0), header: map[string]string{"X-Hold": "1"}}
}
