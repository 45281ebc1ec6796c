package tokenize

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bytedance/sonic"
	"github.com/valyala/fasthttp"
)

// question is what an engine is asked to tokenize.
type question struct {
	form Form
	body []byte // of the client
	// prompts are those of a request with several; nil = body has one.
	prompts []string
	fields  fields
}

// fields are the fields of a body that affect its tokens, besides messages and tools.
type fields struct {
	Model            json.RawMessage            `json:"model"`
	Prompt           json.RawMessage            `json:"prompt"`
	AddSpecialTokens json.RawMessage            `json:"add_special_tokens"`
	TemplateArgs     map[string]json.RawMessage `json:"chat_template_kwargs"`
	ReasoningEffort  json.RawMessage            `json:"reasoning_effort"`
	Documents        json.RawMessage            `json:"documents"`
	ResponseFormat   json.RawMessage            `json:"response_format"`
}

// maxPrompts bounds the prompts of one request, each of which takes a call.
const maxPrompts = 64

var errPrompt = errors.New("no prompt that can be tokenized")

// newQuestion reads a body.
func newQuestion(body []byte, form Form) (q *question, err error) {
	q = &question{form: form, body: body}
	if form.isConverted() {
		return q, nil
	}
	err = sonic.Unmarshal(body, &q.fields)
	if form == Chat {
		return q, nil // the engine reports the error
	}
	if err != nil {
		return nil, err
	}
	var one string
	if sonic.Unmarshal(q.fields.Prompt, &one) == nil {
		return q, nil
	}
	if err := sonic.Unmarshal(q.fields.Prompt, &q.prompts); err != nil {
		return nil, err
	}
	if n := len(q.prompts); n == 0 || n > maxPrompts {
		return nil, errPrompt
	}
	return q, nil
}

// idsOf returns the tokens of a body whose prompt is a list of ids, or of such lists.
func idsOf(body []byte) (lists [][]uint32, ok bool) {
	var b struct {
		Prompt json.RawMessage `json:"prompt"`
	}
	if sonic.Unmarshal(body, &b) != nil {
		return nil, false
	}
	var one []uint32
	if sonic.Unmarshal(b.Prompt, &one) == nil && len(one) > 0 {
		return [][]uint32{one}, true
	}
	if sonic.Unmarshal(b.Prompt, &lists) != nil || len(lists) == 0 {
		return nil, false
	}
	return lists, true
}

// ask asks the engine at an address for the tokens of each prompt.
func (t *Tokenizer) ask(address string, q *question) ([][]uint32, error) {
	known := t.of(address)
	if q.form.isConverted() {
		return t.askConverted(address, q, known)
	}
	if known.isLlamaCpp(t.now()) {
		lists, err := t.askLlamaCpp(address, q)
		if !q.refusedAsForeign(err) {
			return lists, err
		}
		t.forget(address)
		known = api{}
	}
	lists, err := t.askVLLM(address, q, known.renders(Chat, t.now()))
	if err == nil && len(lists) > 0 && len(lists[0]) == 0 {
		// llama.cpp returns no tokens for a request that it does not understand.
		if lists, err = t.askLlamaCpp(address, q); err != nil {
			return nil, errPrompt
		}
		t.learn(address, func(a *api) { a.llamaCpp = t.now().Add(learnedFor) })
	}
	return lists, err
}

// refusedAsForeign reports whether an error shows that the engine is not llama.cpp. That has
// a call for templates, which may fail, and tokenizes any text.
func (q *question) refusedAsForeign(err error) bool {
	status, ok := errors.AsType[statusError](err)
	return ok && (status.absent() || status < 500 && q.form != Chat)
}

// askVLLM asks an engine with the API of vLLM.
func (t *Tokenizer) askVLLM(address string, q *question, renders bool) ([][]uint32, error) {
	f := &q.fields
	switch {
	case q.form == Chat && f.beyondTokenize():
		if renders {
			tokens, err := t.render(address, q)
			if !isAbsent(err) {
				return tokens, err
			}
		}
		body, err := f.merged(q.body)
		if err != nil {
			return nil, err
		}
		return t.tokens(address, "/tokenize", body)
	case q.prompts == nil:
		// Fields that it does not need are ignored.
		return t.tokens(address, "/tokenize", q.body)
	}
	return t.each(q, func(text string) ([][]uint32, error) {
		body, err := sonic.Marshal(map[string]any{"model": orNull(f.Model), "prompt": text, "add_special_tokens": orTrue(f.AddSpecialTokens)})
		if err != nil {
			return nil, err
		}
		return t.tokens(address, "/tokenize", body)
	})
}

// askLlamaCpp asks llama.cpp, which tokenizes only text; another call applies the template.
func (t *Tokenizer) askLlamaCpp(address string, q *question) ([][]uint32, error) {
	tokenize := func(text string) ([][]uint32, error) {
		body, err := sonic.Marshal(map[string]any{"content": text, "add_special": true, "parse_special": true})
		if err != nil {
			return nil, err
		}
		lists, err := t.tokens(address, "/tokenize", body)
		if err == nil && len(lists[0]) == 0 {
			err = errPrompt
		}
		return lists, err
	}
	var answer struct {
		Prompt string `json:"prompt"`
	}
	switch {
	case q.form == Chat:
		if err := t.post(address, "/apply-template", q.body, &answer); err != nil {
			return nil, err
		}
		return tokenize(answer.Prompt)
	case q.prompts != nil:
		return t.each(q, tokenize)
	}
	if err := sonic.Unmarshal(q.fields.Prompt, &answer.Prompt); err != nil {
		return nil, err
	}
	return tokenize(answer.Prompt)
}

// each asks for the tokens of one prompt after the other.
func (t *Tokenizer) each(q *question, ask func(text string) ([][]uint32, error)) (all [][]uint32, err error) {
	for _, text := range q.prompts {
		lists, err := ask(text)
		if err != nil {
			return nil, err
		}
		all = append(all, lists...)
	}
	return all, nil
}

// beyondTokenize reports whether the template uses fields of a chat that vLLM's /tokenize
// does not take.
func (f *fields) beyondTokenize() bool {
	return isSet(f.ReasoningEffort) || isSet(f.Documents) || isSet(f.ResponseFormat)
}

// merged returns a body in which the fields that /tokenize does not take are arguments of
// the template, where vLLM puts them too.
func (f *fields) merged(body []byte) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := sonic.Unmarshal(body, &all); err != nil {
		return nil, err
	}
	if all == nil {
		return nil, errPrompt
	}
	args := map[string]json.RawMessage{}
	for name, value := range f.TemplateArgs {
		args[name] = value
	}
	if isSet(f.Documents) {
		args["documents"] = f.Documents
	}
	setEffort(args, f.ReasoningEffort)
	text, err := sonic.Marshal(args)
	if err != nil {
		return nil, err
	}
	all["chat_template_kwargs"] = text
	return sonic.Marshal(all)
}

func isSet(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" }

func orNull(v json.RawMessage) json.RawMessage {
	if len(v) == 0 {
		return json.RawMessage("null")
	}
	return v
}

func orTrue(v json.RawMessage) json.RawMessage {
	if !isSet(v) {
		return json.RawMessage("true")
	}
	return v
}

// statusError is an answer with another status than 200.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

// isAbsent reports whether an engine said that it has no such call.
func isAbsent(err error) bool {
	status, ok := errors.AsType[statusError](err)
	return ok && status.absent()
}

// absent reports whether the engine says that it has no such call. vLLM forbids
// calls that it was not started to serve (--enable-scale-out), and with --api-key all
// calls below /v1, which /tokenize is not.
func (e statusError) absent() bool {
	switch int(e) {
	case fasthttp.StatusUnauthorized, fasthttp.StatusForbidden, fasthttp.StatusNotFound, fasthttp.StatusMethodNotAllowed, fasthttp.StatusNotImplemented:
		return true
	}
	return false
}

// tokens posts a body and returns the tokens in the answer.
func (t *Tokenizer) tokens(address, path string, body []byte) ([][]uint32, error) {
	var answer struct {
		Tokens   []uint32 `json:"tokens"`
		TokenIDs []uint32 `json:"token_ids"` // of a chat that was rendered
	}
	if err := t.post(address, path, body, &answer); err != nil {
		return nil, err
	}
	if answer.TokenIDs != nil {
		answer.Tokens = answer.TokenIDs
	}
	return [][]uint32{answer.Tokens}, nil
}

// post posts a body and decodes the answer.
func (t *Tokenizer) post(address, path string, body []byte, answer any) error {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://" + address + path)
	req.Header.SetMethod(fasthttp.MethodPost)
	req.Header.SetContentType("application/json")
	req.SetBodyRaw(body)
	if err := t.client(len(body)).DoTimeout(req, resp, callTimeout); err != nil {
		return err
	}
	if resp.StatusCode() != fasthttp.StatusOK {
		return statusError(resp.StatusCode())
	}
	return sonic.Unmarshal(resp.Body(), answer)
}
