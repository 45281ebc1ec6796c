package adversary

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"pointsman/prompt"
	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// view is what Python's json makes of a body.
type view struct {
	OK    bool    `json:"ok"`
	Model *string `json:"model"` // in hexadecimal
	Text  int     `json:"text"`
	Max   int     `json:"max"`
}

// python is a process that answers bodies with views.
type python struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

func startPython(t *testing.T) *python {
	t.Helper()
	bin := proxies.Tool(t, "python3")
	cmd := exec.CommandContext(t.Context(), bin, "testdata/lenient.py")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	return &python{t, in, bufio.NewReaderSize(out, 1<<20)}
}

func (p *python) view(body []byte) (v view) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, hex.EncodeToString(body)); err != nil {
		p.t.Fatal(err)
	}
	line, err := p.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &v)
	}
	if err != nil {
		p.t.Fatalf("%v: %s", err, line)
	}
	return v
}

// writer writes JSON in every way that a lenient parser reads.
type writer struct {
	*rand.Rand
	b     []byte
	quiet bool // as most clients write it
}

func (w *writer) space() {
	for !w.quiet && w.IntN(6) == 0 {
		w.b = append(w.b, " \t\n\r"[w.IntN(4)])
	}
}

// str writes a string, some of its characters escaped.
func (w *writer) str(s string) {
	w.b = append(w.b, '"')
	odds := []int{1 << 30, 1 << 30, 20, 2}[w.IntN(4)]
	if w.quiet {
		odds = 1 << 30
	}
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			w.b = append(w.b, '\\', byte(r))
		case r < ' ' || w.IntN(odds) == 0:
			if a, b := utf16.EncodeRune(r); a != utf8.RuneError {
				w.b = fmt.Appendf(w.b, `\u%04x\u%04X`, a, b)
			} else {
				w.b = fmt.Appendf(w.b, `\u%04x`, r)
			}
		default:
			w.b = utf8.AppendRune(w.b, r)
		}
	}
	w.b = append(w.b, '"')
}

// text writes words, some with half of a pair.
func (w *writer) text() {
	w.str(w.words())
	if !w.quiet && w.IntN(8) == 0 {
		w.b = append(w.b[:len(w.b)-1], `\ud83d"`...)
	}
}

func (w *writer) words() string {
	var b strings.Builder
	for range w.IntN(40) {
		b.WriteString([]string{"all ", "work ", "é", "日本", "\U0001F600", "\"", "\\", "\n", "{", "}", "model", "/"}[w.IntN(12)])
	}
	return b.String()
}

func (w *writer) members(list ...func()) {
	w.b = append(w.b, '{')
	for i, f := range list {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.space()
		f()
		w.space()
	}
	w.b = append(w.b, '}')
}

func (w *writer) member(key string, value func()) func() {
	return func() {
		w.str(key)
		w.space()
		w.b = append(w.b, ':')
		w.space()
		value()
	}
}

func (w *writer) array(n int, value func()) {
	w.b = append(w.b, '[')
	for i := range n {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.space()
		value()
	}
	w.space()
	w.b = append(w.b, ']')
}

func (w *writer) raw(s string) func() { return func() { w.b = append(w.b, s...) } }

func (w *writer) content() {
	switch w.IntN(6) {
	case 0:
		w.raw("null")()
	case 1, 2:
		w.array(w.IntN(4), func() {
			w.members(w.member("type", func() { w.str("text") }), w.member("text", w.text))
		})
	default:
		w.text()
	}
}

// body writes a chat.
func (w *writer) body() []byte {
	w.b = w.b[:0]
	w.quiet = w.IntN(4) == 0
	messages := w.member("messages", func() {
		w.array(w.IntN(5), func() {
			w.members(w.member("role", func() { w.str("user") }), w.member("content", w.content))
		})
	})
	list := []func(){messages}
	add := func(one int, f func()) {
		if w.IntN(one) == 0 {
			list = append(list, f)
		}
	}
	model := func() { w.str([]string{"a", "b", "my-llama", "é", ""}[w.IntN(5)]) }
	list = append(list, w.member("model", model))
	add(4, w.member("model", model))
	add(5, messages)
	add(3, w.member("max_tokens", w.raw([]string{"5", "1e2", "\"7\"", "-1", "1.0", "99999999999999999999", "NaN", "null", "true", "0"}[w.IntN(10)])))
	add(4, w.member("temperature", w.raw([]string{"NaN", "Infinity", "-Infinity", "0.5", "-0"}[w.IntN(5)])))
	add(5, w.member("tools", func() {
		w.array(1, func() {
			w.members(w.member("function", func() { w.members(w.member("description", w.text)) }))
		})
	}))
	add(6, w.member("documents", func() { w.array(2, func() { w.members(w.member("text", w.text)) }) }))
	add(6, w.member("chat_template", w.text))
	add(6, w.member("x", func() { w.raw(strings.Repeat("[", 30) + strings.Repeat("]", 30))() }))
	w.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	w.space()
	w.members(list...)
	w.space()
	return w.encode()
}

// encode writes the document in one of the encodings that Python guesses, and spoils
// some.
func (w *writer) encode() []byte {
	b := bytes.Clone(w.b)
	switch w.IntN(12) {
	case 0:
		return append([]byte("\xef\xbb\xbf"), b...)
	case 1, 2:
		var order binary.AppendByteOrder = binary.LittleEndian
		if w.IntN(2) == 0 {
			order = binary.BigEndian
		}
		var wide []byte
		if w.IntN(2) == 0 {
			wide = order.AppendUint16(nil, 0xfeff)
		}
		for _, u := range utf16.Encode([]rune(string(b))) {
			wide = order.AppendUint16(wide, u)
		}
		return wide
	case 3:
		var wide []byte
		for _, r := range string(b) {
			wide = binary.LittleEndian.AppendUint32(wide, uint32(r))
		}
		return wide
	case 4, 5:
		for range 1 + w.IntN(3) {
			at := w.IntN(len(b))
			switch w.IntN(3) {
			case 0:
				b[at] = byte(w.Uint32())
			case 1:
				b = append(b[:at], b[at+1:]...)
			default:
				b = append(b[:at], append([]byte{"\"{}[],:\\0 \x00"[w.IntN(11)]}, b[at:]...)...)
			}
			if len(b) == 0 {
				return []byte("{}")
			}
		}
	}
	return b
}

// TestLenientParser compares what we see of a body with what Python's json does, which
// engines read it with: the model is the same or the body is known as ambiguous, no
// text that the engine computes is free, and limits are the same.
func TestLenientParser(t *testing.T) {
	n := 4000
	if testing.Short() {
		n = 500
	}
	if rig.Soak {
		n = 400_000
	}
	p := startPython(t)
	w := &writer{Rand: rand.New(rand.NewPCG(11, 1))}
	var b prompt.Body
	read, faults := 0, 0
	for i := range n {
		body := w.body()
		v := p.view(body)
		if !v.OK {
			continue // the engine refuses it
		}
		read++
		b.Scan(body, prompt.ChatCompletions, 0)
		charged := b.TextBytes + b.Unseen
		if !b.Complete {
			charged = max(charged, len(body)) // as intake does
		}
		fault := ""
		switch {
		case v.Model != nil && !b.Ambiguous && !b.Opaque && hex.EncodeToString(b.Model) != *v.Model:
			fault = fmt.Sprintf("the model is %q", b.Model)
		case v.Model != nil && *v.Model != "" && b.Model == nil && !b.Opaque && !b.Ambiguous:
			fault = "no model is seen"
		case charged < v.Text*9/10-16:
			fault = fmt.Sprintf("%d bytes of text are charged", charged)
		case !b.Opaque && v.Max > 0 && b.MaxTokens != v.Max:
			fault = fmt.Sprintf("the limit is %d", b.MaxTokens)
		}
		if fault != "" {
			if faults++; faults <= 10 {
				model := ""
				if v.Model != nil {
					m, _ := hex.DecodeString(*v.Model)
					model = string(m)
				}
				t.Errorf("body %d: %s; Python sees model %q, %d bytes of text, limit %d\n%q", i, fault, model, v.Text, v.Max, body)
			}
		}
	}
	t.Logf("%d of %d bodies read by Python, %d seen otherwise", read, n, faults)
	if read < n/2 {
		t.Errorf("Python refuses %d of %d bodies", n-read, n)
	}
}

// startLenient starts an engine that reads bodies with Python's json, and returns its
// address.
func startLenient(t *testing.T) string {
	t.Helper()
	bin := proxies.Tool(t, "python3")
	address := rig.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command(bin, "testdata/lenient.py", port)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+proxies.Cache()+"/python")
	proxies.EndWithTest(cmd, syscall.SIGKILL)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); _ = cmd.Wait() })
	rig.Eventually(t, 20*time.Second, "the lenient engine answers", func() (bool, string) {
		resp, err := http.Get("http://" + address + "/health")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil, fmt.Sprint(err)
	})
	return address
}

// TestLenientEngines puts two engines that read bodies with Python's json behind each
// proxy, one for each of two models. However a body is written, it comes to the engine
// that serves the model which Python finds in it.
func TestLenientEngines(t *testing.T) {
	rig.EveryProxy(t, func(t *testing.T, r rig.Release) {
		t.Parallel()
		s := rig.NewSite(t, r, fmt.Sprintf("pools:\n  %s: {models: [a], metrics: off, replicas: {r1: {address: %q}}}\n  second: {models: [b], metrics: off, replicas: {r1: {address: %q}}}\n",
			rig.Pool, startLenient(t), startLenient(t)), "scan: {duplicate_models: refuse}")
		s.Patient()
		s.Start()
		client := rig.NewClient(2, true, false)
		defer client.CloseIdleConnections()
		w := &writer{Rand: rand.New(rand.NewPCG(3, 5))}
		read, refused := 0, 0
		for range 120 {
			body := w.body()
			before := []int{s.Agent.Pool(rig.Pool).Decisions, s.Agent.Pool("second").Decisions}
			a := rig.Call{Body: body}.Do(client, s.Front)
			var v view
			if a.Err != nil {
				t.Fatalf("%v\n%q", a.Err, body)
			}
			if a.Status != http.StatusOK || json.Unmarshal(a.Body, &v) != nil || v.Model == nil || *v.Model == "" {
				refused++
				continue
			}
			read++
			after := []int{s.Agent.Pool(rig.Pool).Decisions, s.Agent.Pool("second").Decisions}
			want := map[string][]int{"61": {before[0] + 1, before[1]}, "62": {before[0], before[1] + 1}}[*v.Model]
			if !slices.Equal(after, want) {
				t.Errorf("the engine sees model %s, decided %v, before %v\n%q", *v.Model, after, before, body)
			}
		}
		t.Logf("%d served, %d refused", read, refused)
		if read < 20 {
			t.Errorf("%d of 120 bodies were served", read)
		}
	})
}
