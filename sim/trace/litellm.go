package trace

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/bytedance/sonic"
)

// liteLLMLine is a request as LiteLLM logs it: its StandardLoggingPayload, which
// callbacks get, or a row of its SpendLogs.
type liteLLMLine struct {
	Start      stamp           `json:"startTime"`
	Prompt     json.Number     `json:"prompt_tokens"`
	Completion json.Number     `json:"completion_tokens"`
	Model      string          `json:"model"`
	Call       string          `json:"call_type"`
	Status     string          `json:"status"`
	Messages   json.RawMessage `json:"messages"`
	Session    string          `json:"session_id"`
	Trace      string          `json:"trace_id"`
	Stream     json.RawMessage `json:"stream"`
	Parameters struct {
		Max    json.Number     `json:"max_tokens"`
		Max2   json.Number     `json:"max_completion_tokens"`
		Max3   json.Number     `json:"max_output_tokens"` // of /v1/responses
		Stream json.RawMessage `json:"stream"`
	} `json:"model_parameters"`
}

// liteLLM reads a request of LiteLLM's. Only calls that generate text have a
// length worth replaying.
func (p *parser) liteLLM(l *liteLLMLine) error {
	if l.Status == "failure" {
		p.note("Requests that failed are left out.")
		return nil
	}
	if call := strings.TrimPrefix(l.Call, "a"); call != "" && !strings.Contains(call, "completion") && !strings.Contains(call, "messages") && !strings.Contains(call, "responses") && !strings.Contains(call, "embedding") {
		return nil // of no engine, such as moderations
	}
	input, output := tokensOf(l.Prompt), tokensOf(l.Completion)
	if input < 0 || output < 0 {
		return fmt.Errorf("prompt_tokens %q and completion_tokens %q, want up to %d tokens", l.Prompt, l.Completion, maxTokens)
	}
	if !l.Start.known {
		return badTime("")
	}
	r := Request{Input: max(input, 1), Estimate: max(input, 1), Stream: isTrue(l.Stream) || isTrue(l.Parameters.Stream)}
	if body := messagesBody(l.Messages); body != nil {
		text, err := p.read(&textLine{Body: body})
		if err != nil {
			return err
		}
		text.Stream = r.Stream
		if input > 0 {
			text.Input, text.Estimate = r.Input, min(text.Estimate, maxTokens)
		}
		text.Blocks = text.Blocks[:min(len(text.Blocks), text.Input/textBlockTokens)]
		text.Visible = text.Visible[:min(len(text.Visible), len(text.Blocks))]
		r = text
	} else {
		p.note("Some requests are without their messages, so nothing of them is found in a cache: LiteLLM stores messages with store_prompts_in_spend_logs, or sends them to callbacks.")
	}
	r.Output, r.MaxTokens = max(output, 1), max(tokensOf(l.Parameters.Max), tokensOf(l.Parameters.Max2), tokensOf(l.Parameters.Max3), 0)
	if id := l.Session; id != "" {
		r.Session, r.HasSession = keyOf(id), true
	} else if l.Trace != "" {
		r.Session, r.HasSession = keyOf(l.Trace), true
	}
	return p.add(liteLLMKind, r, l.Start)
}

// dropSingleSessions drops the sessions if none has two requests: then they are
// the ids that LiteLLM makes for each request without one.
func (t *Trace) dropSingleSessions() {
	seen := map[uint64]bool{}
	for _, r := range t.Requests {
		if r.HasSession && seen[r.Session] {
			return
		}
		seen[r.Session] = true
	}
	for i := range t.Requests {
		t.Requests[i].Session, t.Requests[i].HasSession = 0, false
	}
}

// tokensOf reads a number of tokens: 0 if it is absent, and -1 if it is not a number of tokens.
func tokensOf(n json.Number) int {
	if n == "" {
		return 0
	}
	x, err := n.Float64()
	if err != nil || !(x >= 0 && x <= maxTokens) {
		return -1
	}
	return int(x)
}

func isTrue(v json.RawMessage) bool { return string(v) == "true" }

// messagesBody is the body of a request with these messages, nil where there are
// none: LiteLLM logs {}, null or a text in their place when it keeps them to itself.
func messagesBody(messages json.RawMessage) json.RawMessage {
	text := []byte(messages)
	if len(text) > 0 && text[0] == '"' { // JSON in a string, as databases export it
		var inner string
		if sonic.Unmarshal(text, &inner) != nil {
			return nil
		}
		text = []byte(inner)
	}
	if len(text) < 3 || text[0] != '[' || !sonic.Valid(text) {
		return nil
	}
	return append(append([]byte(`{"messages":`), text...), '}')
}
