package fakevllm

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/bytedance/sonic"
)

// How bodies of Messages and Responses become chats: as with vLLM 0.32, whose template
// takes system messages anywhere.

// agentItem is a message, a block of one, or an input item of Responses.
type agentItem struct {
	Role      string          `json:"role"`
	Type      string          `json:"type"`
	Content   json.RawMessage `json:"content"`
	Output    json.RawMessage `json:"output"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	Arguments string          `json:"arguments"`
	Source    struct {
		Type      string `json:"type"`
		URL       string `json:"url"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	} `json:"source"`
}

// wireCall is a call of a function.
type wireCall struct {
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// agentPart is a part of a content that was converted.
type agentPart struct {
	Type  string      `json:"type"`
	Text  *string     `json:"text,omitempty"`
	Image *agentImage `json:"image_url,omitempty"`
}

type agentImage struct {
	URL string `json:"url"`
}

// said is a message of plain text.
func said(role, text string) wireMessage { return wireMessage{Role: role, Content: quote(text)} }

// call adds the call of a function to a message.
func (m *wireMessage) call(id, name, arguments string) {
	c := wireCall{ID: id}
	c.Function.Name, c.Function.Arguments = name, arguments
	var calls []wireCall
	if len(m.ToolCalls) > 0 && decode(m.ToolCalls, &calls) != nil {
		calls = nil
	}
	m.ToolCalls, _ = sonic.Marshal(append(calls, c))
}

// itemsOf returns the parts of a content, which may be a text.
func itemsOf(content json.RawMessage) (items []agentItem, refused *apiError) {
	var text string
	if len(content) == 0 || isNull(content) {
		return nil, nil
	}
	if sonic.Unmarshal(content, &text) == nil {
		return []agentItem{{Type: "text", Text: text}}, nil
	}
	if err := decode(content, &items); err != nil {
		return nil, badRequest("content: %v", err)
	}
	return items, nil
}

// texts joins the texts of parts, but for the line in which Claude Code counts.
func texts(items []agentItem, between string) string {
	var list []string
	for _, item := range items {
		if !strings.HasPrefix(item.Text, "x-anthropic-billing-header") {
			list = append(list, item.Text)
		}
	}
	return strings.Join(list, between)
}

// ofMessages makes a chat of a body of Messages.
func (r *wireRequest) ofMessages() *apiError {
	if len(r.Items) == 0 {
		return missing("messages")
	}
	var list []wireMessage
	system, refused := itemsOf(r.System)
	if refused != nil {
		return refused
	}
	if text := texts(system, ""); text != "" {
		list = append(list, said("system", text))
	}
	for _, m := range r.Items {
		blocks, refused := itemsOf(m.Content)
		if refused != nil {
			return refused
		}
		if m.Role == "system" {
			list = append(list, said("system", texts(blocks, "")))
			continue
		}
		out, parts := wireMessage{Role: m.Role}, []agentPart{}
		for i, b := range blocks {
			switch b.Type {
			case "text":
				parts = append(parts, agentPart{Type: "text", Text: &blocks[i].Text})
			case "thinking":
				out.Reasoning += b.Thinking
			case "tool_use":
				if b.Input == nil {
					b.Input = json.RawMessage("{}")
				}
				out.call(b.ID, b.Name, string(b.Input))
			case "tool_result":
				items, refused := itemsOf(b.Content)
				if refused != nil {
					return refused
				}
				list = append(list, said("tool", texts(items, "\n")))
			case "image":
				url := b.Source.URL
				if b.Source.Type != "url" {
					url = "data:" + b.Source.MediaType + ";base64," + b.Source.Data
				}
				parts = append(parts, agentPart{Type: "image_url", Image: &agentImage{url}})
			}
		}
		if len(parts) == 0 && m.Role == "user" {
			continue
		}
		out.Content, _ = sonic.Marshal(parts)
		list = append(list, out)
	}
	r.Messages = &list
	if r.Thinking.Type == "disabled" {
		r.ReasoningEffort = json.RawMessage(`"none"`)
	} else if len(r.OutputConfig.Effort) > 0 {
		r.ReasoningEffort = r.OutputConfig.Effort
	}
	return nil
}

// ofResponses makes a chat of a body of Responses.
func (r *wireRequest) ofResponses() *apiError {
	if len(r.Input) == 0 {
		return missing("input")
	}
	r.MaxCompletionTokens, r.ReasoningEffort = r.MaxOutputTokens, r.Reasoning.Effort
	var list []wireMessage
	if r.Instructions != nil {
		list = append(list, said("system", *r.Instructions))
	}
	items, refused := itemsOf(r.Input)
	if refused != nil {
		return refused
	}
	for _, item := range items {
		var answer *wireMessage // that the item is a part of
		if n := len(list); n > 0 && list[n-1].Role == "assistant" {
			answer = &list[n-1]
		}
		content := item.Content
		if item.Type == "function_call_output" {
			item.Role, content = "tool", item.Output
		}
		parts, refused := itemsOf(content)
		switch {
		case refused != nil:
			return refused
		case item.Type == "text":
			list = append(list, said("user", item.Text))
		case item.Type == "function_call":
			if answer == nil {
				list = append(list, wireMessage{Role: "assistant"})
				answer = &list[len(list)-1]
			}
			answer.call(item.CallID, item.Name, item.Arguments)
		case item.Type == "reasoning" && answer != nil && answer.Reasoning == "":
			answer.Reasoning = texts(parts, "")
		case item.Type == "reasoning":
			list = append(list, wireMessage{Role: "assistant", Reasoning: texts(parts, "")})
		case item.Role == "assistant" && answer != nil && answer.Content == nil:
			answer.Content = quote(texts(parts, ""))
		case item.Role == "":
			list = append(list, said("tool", texts(parts, "")))
		default:
			list = append(list, said(item.Role, texts(parts, "")))
		}
	}
	r.Messages = &list
	return nil
}

// toolText is how the template writes the definitions of tools, whichever API they are
// of.
func toolText(tools json.RawMessage) string {
	type definition struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Schema      json.RawMessage `json:"input_schema"`
	}
	var list []struct {
		Type     string      `json:"type"`
		Function *definition `json:"function"`
		definition
	}
	if decode(tools, &list) != nil {
		return string(tools)
	}
	var b bytes.Buffer
	for _, t := range list {
		d := &t.definition
		if t.Function != nil {
			d = t.Function
		}
		if d.Schema != nil {
			d.Parameters = objectSchema(d.Schema)
		} else if t.Type != "" && t.Type != "function" {
			continue // of Responses, not shown to the model
		}
		b.WriteString(d.Name + "\n" + d.Description + "\n")
		if err := json.Compact(&b, d.Parameters); err != nil {
			b.Write(d.Parameters)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// objectSchema is a schema of Messages, which is of an object unless it says so.
func objectSchema(schema json.RawMessage) json.RawMessage {
	var keys map[string]json.RawMessage
	if decode(schema, &keys) != nil || keys["type"] != nil {
		return schema
	}
	rest := strings.TrimSuffix(strings.TrimSpace(string(schema)), "}")
	if len(keys) > 0 {
		rest += ","
	}
	return json.RawMessage(rest + `"type":"object"}`)
}

// callText is how the template writes calls of functions.
func callText(raw json.RawMessage) string {
	var calls []wireCall
	if decode(raw, &calls) != nil {
		return string(raw)
	}
	var b strings.Builder
	for _, c := range calls {
		b.WriteString(c.Function.Name + "(" + c.Function.Arguments + ")")
	}
	return b.String()
}
