package fakevllm

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/bytedance/sonic"
)

// dialect is the difference between chat and plain completions on the wire.
type dialect struct {
	chat          bool
	prefix        string // of ids
	object, chunk string
}

var (
	chatDialect = &dialect{true, "chatcmpl-", "chat.completion", "chat.completion.chunk"}
	textDialect = &dialect{false, "cmpl-", "text_completion", "text_completion"}
)

// generation is one request for completions.
type generation struct {
	*call
	*dialect
	id        string
	model     string
	created   int64
	choices   int // for each prompt
	prompt    int // tokens of all prompts
	seeds     []uint64
	usage     bool // the last chunk contains the usage
	usageEach bool // so does every other chunk
}

// chat serves POST /v1/chat/completions.
func (s *Server) chat(x *exchange) {
	r, refused := decodeRequest(x.body)
	if refused != nil {
		x.fail(refused)
		return
	}
	tokens, refused := r.chatTokens()
	if refused != nil {
		x.fail(refused)
		return
	}
	if s.o.LlamaCpp {
		tokens = appendSpecial(nil, textOf(tokens)) // it tokenizes the text of the template
	}
	s.generate(x, r, chatDialect, [][]uint32{tokens})
}

// completions serves POST /v1/completions.
func (s *Server) completions(x *exchange) {
	r, refused := decodeRequest(x.body)
	if refused != nil {
		x.fail(refused)
		return
	}
	lists, refused := prompts("prompt", r.Prompt)
	if refused != nil {
		x.fail(refused)
		return
	}
	s.generate(x, r, textDialect, lists)
}

// maxSequences is the largest number of choices of all prompts of one request.
const maxSequences = 4096

// generate answers a request for completions of prompts.
func (s *Server) generate(x *exchange, r *wireRequest, d *dialect, prompts [][]uint32) {
	g, refused := s.newGeneration(r, d, prompts)
	if refused == nil {
		for _, q := range g.seqs {
			q.Received = x.received
		}
		if err := x.engine.submit(g.call); err != nil {
			refused = badRequest("%v", err)
		}
	}
	if refused != nil {
		x.fail(refused)
		return
	}
	// If the client disconnects, cancel its work, also if the handler panics.
	defer func() {
		if !g.done.Load() {
			x.engine.cancel(g.call)
		}
	}()
	if g.stream {
		s.streamAnswer(x, g)
	} else {
		s.wholeAnswer(x, g)
	}
}

func (s *Server) newGeneration(r *wireRequest, d *dialect, prompts [][]uint32) (*generation, *apiError) {
	model, lora, refused := s.modelOf(r)
	if refused != nil {
		return nil, refused
	}
	g := &generation{
		call:    &call{notify: make(chan struct{}, 1), stream: isTrue(r.Stream)},
		dialect: d, model: model, created: time.Now().Unix(), choices: 1,
		id: fmt.Sprintf("%s%s-%d", d.prefix, s.o.Name, s.ids.Add(1)),
	}
	if r.N != nil {
		g.choices = *r.N
	}
	if g.choices < 1 || g.choices > maxSequences || g.choices*len(prompts) > maxSequences {
		return nil, badRequest("n must be at least 1 and all choices at most %d, got %d for %d prompts", maxSequences, g.choices, len(prompts))
	}
	if o := r.StreamOptions; o != nil {
		if !g.stream {
			return nil, badRequest("Stream options can only be defined when `stream=True`.")
		}
		g.usage = isTrue(o.IncludeUsage)
		g.usageEach = g.usage && isTrue(o.ContinuousUsageStats)
	}
	for _, tokens := range prompts {
		if err := s.addPrompt(g, r, tokens, lora); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// addPrompt adds the sequences of one prompt.
func (s *Server) addPrompt(g *generation, r *wireRequest, tokens []uint32, lora string) *apiError {
	if len(tokens) == 0 {
		return badRequest("The prompt is empty")
	}
	capacity := s.o.MaxModelLen - len(tokens)
	if capacity < 1 {
		return badRequest("This model's maximum context length is %d tokens. However, your request has %d input tokens. Please reduce the length of the input messages.", s.o.MaxModelLen, len(tokens))
	}
	salt := lora
	if r.CacheSalt != nil {
		salt += "\x00" + *r.CacheSalt
	}
	keys := extendKeys(nil, tokens, s.o.BlockSize, salt)
	seed := digest(tokens)
	output, finish, refused := r.outputLength(g.chat, seed, capacity, len(tokens))
	if refused != nil {
		return refused
	}
	g.prompt += len(tokens)
	for i := range g.choices {
		q := &sequence{lora: lora, finish: finish, reports: r.XArgs.ReportMode == "full"}
		if r.CacheSalt != nil {
			q.salt = *r.CacheSalt
		}
		q.Input, q.Output = len(tokens), output
		// The next turn of a conversation contains the answer.
		all := tokens[:len(tokens):len(tokens)]
		answer := appendTokens(nil, string(s.answer(seed+uint64(i), output)))
		all = append(all, answer[:output]...)
		q.Blocks = extendKeys(slices.Clip(keys), all, s.o.BlockSize, salt)
		if s.engine.events != nil {
			q.tokens = all
		}
		g.seqs = append(g.seqs, q)
		g.seeds = append(g.seeds, seed+uint64(i))
	}
	return nil
}

// outputLength returns the number of tokens of an answer and why it ends. The
// model stops by itself after 128 to 383 tokens, depending on the prompt.
// max_tokens limits it, and with ignore_eos only max_tokens ends it. capacity is
// the number of tokens that the context has left.
func (r *wireRequest) outputLength(chat bool, seed uint64, capacity, prompt int) (n int, finish string, refused *apiError) {
	bound := capacity
	switch limit := r.maxOutput(); {
	case limit != nil && *limit < 1:
		return 0, "", badRequest("max_tokens must be at least 1, got %d.", *limit)
	case limit != nil && *limit > capacity:
		return 0, "", badRequest("'max_tokens' or 'max_completion_tokens' is too large: %d. This model's maximum context length is %d tokens and your request has %d input tokens.", *limit, capacity+prompt, prompt)
	case limit != nil:
		bound = *limit
	case !chat:
		bound = min(bound, 16)
	}
	natural := max(128+int(seed%256), r.MinTokens)
	if natural < bound && !isTrue(r.IgnoreEOS) {
		return natural, "stop", nil
	}
	return bound, "length", nil
}

// intro is the first token of each answer: the replica's name, padded so that
// the tokens of an answer are those of its text.
func intro(name string) string {
	t := name + ": "
	for len(t)%4 != 0 {
		t += " "
	}
	return t
}

// words are the other tokens, of four bytes each, without characters that JSON
// escapes.
const words = "the far its own now and two men ran off any day set out all new red old box car tie bar cab ore jet fly hub gas oil log ice air pit top end way run act ask eat see fit cut put let get met won "

// appendToken appends the text of output token i.
func (s *Server) appendToken(dst []byte, seed uint64, i int) []byte {
	if i == 0 {
		return append(dst, s.intro...)
	}
	x := (seed + uint64(i)) * 0x9e3779b97f4a7c15
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	at := (x >> 40) % (uint64(len(words)) / 4) * 4
	return append(dst, words[at:at+4]...)
}

// answer returns the text of n output tokens. Tokenized, it has at least n
// tokens.
func (s *Server) answer(seed uint64, n int) []byte {
	text := make([]byte, 0, len(s.intro)+4*n)
	for i := range n {
		text = s.appendToken(text, seed, i)
	}
	return text
}

type wireUsage struct {
	PromptTokens     int          `json:"prompt_tokens"`
	TotalTokens      int          `json:"total_tokens"`
	CompletionTokens int          `json:"completion_tokens"`
	Details          usageDetails `json:"prompt_tokens_details"`
}

type usageDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

// usageNow returns the tokens of a request so far. A prompt with several choices
// counts once, and only if it has a first token.
func (g *generation) usageNow() wireUsage {
	u := wireUsage{PromptTokens: g.prompt}
	for i, q := range g.seqs {
		n := int(q.produced.Load())
		u.CompletionTokens += n
		if i%g.choices == 0 && n > 0 {
			u.Details.CachedTokens += q.Cached
		}
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

// wait blocks until the engine has something new for g. It does not return if
// the client disconnects or the server closes.
// It reports whether the core lives.
func (s *Server) wait(x *exchange, g *generation) bool {
	select {
	case <-s.core.dies():
		return false
	case <-g.notify:
	case <-x.r.Context().Done():
		panic(http.ErrAbortHandler)
	case <-s.engine.closed:
		panic(http.ErrAbortHandler)
	}
	return true
}

type wireChoice struct {
	Index        int          `json:"index"`
	Message      *wireMessage `json:"message,omitempty"`
	Text         *string      `json:"text,omitempty"`
	Logprobs     *struct{}    `json:"logprobs"`
	FinishReason string       `json:"finish_reason"`
	StopReason   *string      `json:"stop_reason"`
}

type wireAnswer struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []wireChoice `json:"choices"`
	Usage   wireUsage    `json:"usage"`
}

// wholeAnswer waits for all tokens and answers at once.
func (s *Server) wholeAnswer(x *exchange, g *generation) {
	for !g.done.Load() {
		if !s.wait(x, g) {
			x.fail(coreDead)
			return
		}
	}
	out := wireAnswer{ID: g.id, Object: g.object, Created: g.created, Model: g.model, Usage: g.usageNow()}
	for i, q := range g.seqs {
		text := s.answer(g.seeds[i], q.Output)
		c := wireChoice{Index: i, FinishReason: q.finish}
		if g.chat {
			content, err := sonic.Marshal(string(text))
			if err != nil {
				panic(err) // strings always marshal
			}
			c.Message = &wireMessage{Role: "assistant", Content: content, ToolCalls: []byte("[]")}
		} else {
			t := string(text)
			c.Text = &t
		}
		out.Choices = append(out.Choices, c)
	}
	x.json(http.StatusOK, out)
}
