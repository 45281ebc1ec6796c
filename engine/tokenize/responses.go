package tokenize

import (
	"encoding/json"

	"github.com/bytedance/sonic"
)

// vLLM turns the items of a body of Responses into a chat. Items of one answer (its
// reasoning, its text, its calls of tools) become one message.

type responsesBody struct {
	Model        json.RawMessage            `json:"model"`
	Instructions string                     `json:"instructions"`
	Input        json.RawMessage            `json:"input"`
	Tools        []responsesTool            `json:"tools"`
	TemplateArgs map[string]json.RawMessage `json:"chat_template_kwargs"`
	Reasoning    struct {
		Effort json.RawMessage `json:"effort"`
	} `json:"reasoning"`
	// Conversations that the engine keeps.
	Previous         string          `json:"previous_response_id"`
	PreviousMessages json.RawMessage `json:"previous_input_messages"`
}

type responsesTool struct {
	Type string `json:"type"`
	chatFunction
}

type responsesItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Status    string          `json:"status"`
	Content   json.RawMessage `json:"content"`
	Summary   []responsesPart `json:"summary"`
	Encrypted json.RawMessage `json:"encrypted_content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Namespace string          `json:"namespace"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
}

type responsesPart struct {
	Type string  `json:"type"`
	Text *string `json:"text"`
}

// convertResponses turns a body of Responses into a chat.
func convertResponses(body []byte) (*chatBody, error) {
	var b responsesBody
	if err := sonic.Unmarshal(body, &b); err != nil {
		return nil, err
	}
	if b.Previous != "" || isSet(b.PreviousMessages) {
		return nil, errForm
	}
	// vLLM has the tokenizer add its special tokens to what the template has written.
	c := &chatBody{Model: b.Model, Args: templateArgs(b.TemplateArgs, b.Reasoning.Effort), AddSpecialTokens: true}
	if len(b.Tools) > 0 {
		tools := []chatTool{}
		for _, t := range b.Tools {
			switch t.Type {
			case "function":
				tools = append(tools, chatTool{Type: t.Type, Function: t.chatFunction})
			case "custom", "namespace":
				return nil, errForm
			} // vLLM shows the model no others
		}
		c.Tools = &tools
	}
	if b.Instructions != "" {
		c.Messages = append(c.Messages, chatMessage{Role: "system", Content: quoted(b.Instructions)})
	}
	var text string
	if isSet(b.Input) && sonic.Unmarshal(b.Input, &text) == nil {
		c.Messages = append(c.Messages, chatMessage{Role: "user", Content: quoted(text)})
		return c, nil
	}
	var items []responsesItem
	if err := sonic.Unmarshal(b.Input, &items); err != nil {
		return nil, err
	}
	from := len(c.Messages) // answers before the input are no part of its first item
	for i := range items {
		var err error
		if c.Messages, err = appendItem(c.Messages, from, &items[i]); err != nil {
			return nil, err
		}
	}
	if n := len(items); n > 0 && items[n-1].goesOn() {
		no := false
		c.AddGenerationPrompt, c.ContinueFinal = &no, true
	}
	return c, nil
}

// goesOn reports whether the item is an answer that is to be continued, if it is the
// last one.
func (i *responsesItem) goesOn() bool {
	switch i.Type {
	case "", "message", "reasoning":
		return i.Status == "in_progress" || i.Status == "incomplete"
	}
	return false
}

// appendItem converts an item: into a message, or into the answer before it.
func appendItem(list []chatMessage, from int, i *responsesItem) ([]chatMessage, error) {
	var answer *chatMessage
	if n := len(list); n > from && list[n-1].Role == "assistant" {
		answer = &list[n-1]
	}
	switch {
	case i.Type == "function_call":
		if i.Namespace != "" {
			return nil, errForm
		}
		call := newCall(i.CallID, i.Name, i.Arguments)
		if answer != nil {
			answer.ToolCalls = append(answer.ToolCalls, call)
			return list, nil
		}
		return append(list, chatMessage{Role: "assistant", ToolCalls: []chatCall{call}}), nil
	case i.Type == "function_call_output":
		content, err := contentOf(i.Output)
		return append(list, chatMessage{Role: "tool", Content: content, ToolCallID: &i.CallID}), err
	case i.Type == "reasoning":
		text, err := i.reasoning()
		if err != nil {
			return nil, err
		}
		if answer != nil && answer.Reasoning == nil {
			answer.Reasoning = &text
			return list, nil
		}
		return append(list, chatMessage{Role: "assistant", Reasoning: &text}), nil
	case i.Type != "" && i.Type != "message" || i.Role == "":
		return nil, errForm
	case i.Role == "assistant":
		text, err := i.answer()
		if err != nil {
			return nil, err
		}
		if answer != nil && answer.Content == nil {
			answer.Content = quoted(text)
			return list, nil
		}
		return append(list, chatMessage{Role: "assistant", Content: quoted(text)}), nil
	}
	content, err := contentOf(i.Content)
	return append(list, chatMessage{Role: i.Role, Content: content}), err
}

// contentOf converts the content of a message: a text, or parts of text.
func contentOf(content json.RawMessage) (json.RawMessage, error) {
	var text string
	if isSet(content) && sonic.Unmarshal(content, &text) == nil {
		return quoted(text), nil
	}
	var parts []responsesPart
	if err := sonic.Unmarshal(content, &parts); err != nil {
		return nil, err
	}
	out := make([]chatPart, 0, len(parts))
	for _, p := range parts {
		if p.Text == nil || p.Type != "input_text" && p.Type != "output_text" && p.Type != "text" {
			return nil, errForm
		}
		out = append(out, chatPart{Type: "text", Text: p.Text})
	}
	return partsOf(out)
}

// answer returns the text of an answer: vLLM takes the first part.
func (i *responsesItem) answer() (string, error) {
	var text string
	if isSet(i.Content) && sonic.Unmarshal(i.Content, &text) == nil {
		return text, nil
	}
	var parts []responsesPart
	if err := sonic.Unmarshal(i.Content, &parts); err != nil {
		return "", err
	}
	return first(parts)
}

// reasoning returns the text of a reasoning item: the first part of its content, or
// else of its summary.
func (i *responsesItem) reasoning() (string, error) {
	if isSet(i.Encrypted) && string(i.Encrypted) != `""` {
		return "", errForm
	}
	var parts []responsesPart
	if isSet(i.Content) {
		if err := sonic.Unmarshal(i.Content, &parts); err != nil {
			return "", err
		}
	}
	if len(parts) == 0 {
		parts = i.Summary
	}
	if len(parts) == 0 {
		return "", nil
	}
	return first(parts)
}

// first returns the text of the first part.
func first(parts []responsesPart) (string, error) {
	if len(parts) == 0 || parts[0].Text == nil {
		return "", errForm
	}
	return *parts[0].Text, nil
}
