package demo

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bytedance/sonic"
)

// traffic is the workload on its way: each request at its time, whether those
// before it have been answered or not.
type traffic struct {
	calls   []call
	client  *http.Client
	urls    []string // of the proxies, which get a request in turn
	sent    atomic.Uint64
	done    atomic.Int64
	running atomic.Int64

	mu             sync.Mutex
	served, failed int
	ttft           []time.Duration // of the streamed answers
	byBand         map[string][]time.Duration
	errors         []string // the first few
}

func newTraffic(calls []call, urls ...string) *traffic {
	transport := &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
	return &traffic{calls: calls, urls: urls, byBand: map[string][]time.Duration{}, client: &http.Client{Transport: transport, Timeout: 2 * time.Minute}}
}

// run sends all requests and returns when all have ended, or ctx has.
func (l *traffic) run(ctx context.Context) {
	defer l.client.CloseIdleConnections()
	var wg sync.WaitGroup
	start := time.Now()
	for i := range l.calls {
		c := &l.calls[i]
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(start.Add(c.at))):
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			l.running.Add(1)
			defer l.running.Add(-1)
			defer l.done.Add(1)
			ttft, err := l.send(ctx, c)
			l.note(c.band, ttft, err)
		})
	}
	wg.Wait()
}

// note keeps the outcome of one request; ttft is 0 for one that is not streamed.
func (l *traffic) note(band string, ttft time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed++
		if len(l.errors) < 5 {
			l.errors = append(l.errors, err.Error())
		}
		return
	}
	l.served++
	if ttft > 0 {
		l.ttft = append(l.ttft, ttft)
		l.byBand[band] = append(l.byBand[band], ttft)
	}
}

// send sends one request and reads its answer. The time to first token of a
// stream is that of its first chunk that holds text.
func (l *traffic) send(ctx context.Context, c *call) (ttft time.Duration, err error) {
	url := l.urls[(l.sent.Add(1)-1)%uint64(len(l.urls))]
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+c.path, bytes.NewReader(c.body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(cmp.Or(c.header, "X-Session-ID"), c.session)
	if c.band != "" {
		req.Header.Set("X-Band", c.band)
	}
	start := time.Now()
	resp, err := l.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return 0, fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(b))
	}
	if c.stream {
		return readStream(resp.Body, start)
	}
	b, err := io.ReadAll(resp.Body)
	if err == nil && !sonic.Valid(b) {
		err = fmt.Errorf("the answer is no JSON: %.60q", b)
	}
	return 0, err
}

type chunk struct {
	Type    string `json:"type"` // of Responses and Messages
	Choices []struct {
		Text  string  `json:"text"`
		Delta message `json:"delta"`
	} `json:"choices"`
}

func (c *chunk) hasText() bool {
	if c.Type == "response.output_text.delta" || c.Type == "content_block_delta" {
		return true
	}
	for _, ch := range c.Choices {
		if ch.Text != "" || ch.Delta.Content != "" {
			return true
		}
	}
	return false
}

// last reports whether the event of that data ends a stream: [DONE], or the last one of
// Responses and Messages.
func last(data string) bool {
	return data == "[DONE]" || strings.Contains(data, `"type":"message_stop"`) || strings.Contains(data, `"type":"response.completed"`)
}

// readStream reads server-sent events up to the last one, without which the answer
// was cut, and returns when the first text came after start.
func readStream(body io.Reader, start time.Time) (ttft time.Duration, err error) {
	in := bufio.NewReader(body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0, fmt.Errorf("a stream ended early: %w", err)
		}
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok {
			continue
		}
		if last(data) {
			_, err := io.Copy(io.Discard, in)
			return ttft, err
		}
		if ttft > 0 {
			continue
		}
		var c chunk
		if err := sonic.UnmarshalString(data, &c); err != nil {
			return 0, err
		}
		if c.hasText() {
			ttft = time.Since(start)
		}
	}
}
