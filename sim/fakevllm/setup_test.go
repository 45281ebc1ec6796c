package fakevllm

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bytedance/sonic"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replica is a Server on a real socket.
type replica struct {
	*testing.T
	*Server
	url    string
	client *http.Client
}

func start(t *testing.T, o Options) *replica {
	t.Helper()
	if o.Name == "" {
		o.Name = "r1"
	}
	if o.Models == nil {
		o.Models = []string{"m", "alias"}
	}
	s := New(o)
	h := httptest.NewUnstartedServer(s)
	h.Config = s.HTTPServer()
	h.Start()
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		h.CloseClientConnections()
		s.Close()
		h.Close()
	})
	return &replica{t, s, h.URL, &http.Client{Transport: transport}}
}

// send sends a request; headers are pairs of name and value.
func (r *replica) send(ctx context.Context, method, path, body string, headers ...string) (*http.Response, error) {
	r.Helper()
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return r.client.Do(req)
}

// do sends a request and reads the answer.
func (r *replica) do(method, path, body string, headers ...string) (*http.Response, string) {
	r.Helper()
	resp, err := r.send(r.Context(), method, path, body, headers...)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return resp, string(out)
}

func (r *replica) post(path, body string) (int, string) {
	r.Helper()
	resp, out := r.do(http.MethodPost, path, body)
	return resp.StatusCode, out
}

// metric returns the value of the first sample that begins with prefix, -1 if
// there is none.
func (r *replica) metric(prefix string) float64 {
	r.Helper()
	_, page := r.do(http.MethodGet, "/metrics", "")
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, prefix) {
			v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
			if err != nil {
				r.Fatal(err)
			}
			return v
		}
	}
	return -1
}

// eventually waits until f returns true.
func (r *replica) eventually(what string, f func() bool) {
	r.Helper()
	for deadline := time.Now().Add(10 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatal("never happened: ", what)
		}
	}
}

// events returns the data of each event in a stream.
func events(t *testing.T, stream string) []string {
	t.Helper()
	var out []string
	parts := strings.Split(stream, "\n\n")
	for _, p := range parts[:len(parts)-1] {
		data, ok := strings.CutPrefix(p, "data: ")
		if !ok || strings.Contains(data, "\n") {
			t.Fatalf("not an event: %q", p)
		}
		out = append(out, data)
	}
	if last := parts[len(parts)-1]; last != "" {
		t.Fatalf("stream ends with %q", last)
	}
	return out
}

// masked replaces the creation time.
func masked(s string) string {
	_, after, ok := strings.Cut(s, `"created":`)
	if !ok {
		return s
	}
	return strings.Replace(s, after[:10], "NOW", 1)
}

const hello = `"messages":[{"role":"user","content":"hello there, how is the line today?"}]`

type answer struct {
	ID, Object, Model string
	Choices           []struct {
		Index        int
		Text         string
		Message      struct{ Role, Content string }
		FinishReason string `json:"finish_reason"`
	}
	Usage wireUsage
}

func (r *replica) answer(path, body string) (a answer) {
	r.Helper()
	status, out := r.post(path, body)
	if status != 200 {
		r.Fatalf("%d %s", status, out)
	}
	if err := sonic.UnmarshalString(out, &a); err != nil {
		r.Fatalf("%v: %s", err, out)
	}
	return a
}
