package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bytedance/sonic"
)

// workload is a mixture of conversations that grow turn by turn, streamed and
// plain, with completions and embeddings between them. A few long system
// prompts are shared by many conversations.
type workload struct {
	seed    uint64
	left    atomic.Int64
	done    atomic.Int64
	running atomic.Int64

	mu             sync.Mutex
	served, failed int
	ttft           []time.Duration
	errors         []string // the first few
}

func newWorkload(seed uint64, requests int) *workload {
	w := &workload{seed: seed}
	w.left.Store(int64(requests))
	return w
}

const (
	systemPrompts = 6
	turnsAtMost   = 6
)

// run sends the workload from a number of clients and returns when all have
// been answered, or ctx ends.
func (w *workload) run(ctx context.Context, url string, clients int) {
	transport := &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	var wg sync.WaitGroup
	for n := range clients {
		wg.Go(func() {
			chance := rand.New(rand.NewPCG(w.seed, uint64(n)))
			for talk := 0; ctx.Err() == nil && w.left.Load() > 0; talk++ {
				w.converse(ctx, client, url, chance, fmt.Sprintf("demo-%d-%d", n, talk))
			}
		})
	}
	wg.Wait()
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// converse plays one conversation.
func (w *workload) converse(ctx context.Context, client *http.Client, url string, chance *rand.Rand, id string) {
	system := rand.New(rand.NewPCG(w.seed, 1000+chance.Uint64N(systemPrompts)))
	talk := []message{{"system", words(system, 700)}}
	for range 1 + chance.IntN(turnsAtMost) {
		if w.left.Add(-1) < 0 || ctx.Err() != nil {
			return
		}
		path, body := "/v1/chat/completions", map[string]any{}
		stream := chance.IntN(10) < 6
		body["model"], body["max_tokens"], body["stream"] = "demo", 8+chance.IntN(60), stream
		switch chance.IntN(12) {
		case 0:
			path, body["prompt"] = "/v1/completions", words(chance, 120)
		case 1:
			path, stream = "/v1/embeddings", false
			body = map[string]any{"model": "demo", "input": words(chance, 60)}
		default:
			talk = append(talk, message{"user", words(chance, 20+chance.IntN(200))})
			body["messages"] = talk
		}
		answer, err := w.send(ctx, client, url+path, id, body, stream)
		if err != nil {
			w.fail(err)
			continue
		}
		if path == "/v1/chat/completions" {
			talk = append(talk, message{"assistant", answer})
		}
	}
}

// send sends one request, notes its time to first token and returns the text
// of the answer.
func (w *workload) send(ctx context.Context, client *http.Client, url, session string, body any, stream bool) (string, error) {
	w.running.Add(1)
	defer w.running.Add(-1)
	defer w.done.Add(1)
	text, err := sonic.Marshal(body)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Session-ID", session)
	start := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	_, peekErr := in.Peek(1)
	ttft := time.Since(start)
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(in, 512))
		return "", fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(b))
	}
	if peekErr != nil {
		return "", peekErr
	}
	var answer string
	if stream {
		answer, err = readStream(in)
	} else {
		answer, err = readPlain(in)
	}
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.served++
	w.ttft = append(w.ttft, ttft)
	return answer, nil
}

type completion struct {
	Choices []struct {
		Text    string  `json:"text"`
		Delta   message `json:"delta"`
		Message message `json:"message"`
	} `json:"choices"`
}

func (c *completion) text() string {
	var b strings.Builder
	for _, ch := range c.Choices {
		b.WriteString(ch.Text + ch.Delta.Content + ch.Message.Content)
	}
	return b.String()
}

// readStream reads server-sent events up to [DONE], without which the answer
// was cut.
func readStream(in *bufio.Reader) (string, error) {
	var answer strings.Builder
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("stream ended early: %w", err)
		}
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			_, err := io.Copy(io.Discard, in)
			return answer.String(), err
		}
		var c completion
		if err := sonic.UnmarshalString(data, &c); err != nil {
			return "", err
		}
		answer.WriteString(c.text())
	}
}

func readPlain(in io.Reader) (string, error) {
	b, err := io.ReadAll(in)
	if err != nil {
		return "", err
	}
	var c completion
	if err := sonic.Unmarshal(b, &c); err != nil {
		return "", err
	}
	return c.text(), nil
}

func (w *workload) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed++
	if len(w.errors) < 5 {
		w.errors = append(w.errors, err.Error())
	}
}

// words makes n words of text.
func words(chance *rand.Rand, n int) string {
	const syllables = "ba be bi bo bu da de di do du ka ke ki ko ku la le li lo lu ma me mi mo mu na ne ni no nu ra re ri ro ru"
	list := strings.Fields(syllables)
	var b strings.Builder
	for range n {
		for range 1 + chance.IntN(3) {
			b.WriteString(list[chance.IntN(len(list))])
		}
		b.WriteByte(' ')
	}
	return b.String()
}
