package tokenize

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/bytedance/sonic"

	"pointsman/prompt"
)

// shape is what a body of Messages has of which engines may make different things.
type shape uint16

const (
	inlineSystem shape = 1 << iota // system messages among the others
	noThinking                     // it turns thinking off
	noTools                        // it has tools and forbids their use
	hasEffort
	hasThoughts
	hasCalls
	hasResults
	hasImages
	hasTools
	hasBilling
	hasReferences
	endsInAnswer

	// choices are those that vLLM decides by what its template does.
	choices = inlineSystem | noThinking | noTools
)

// errForm is the error for a body that only the engine can convert.
var errForm = errors.New("no form that is converted")

type anthropicBody struct {
	Model        json.RawMessage            `json:"model"`
	System       json.RawMessage            `json:"system"`
	Messages     []anthropicMessage         `json:"messages"`
	Tools        *[]anthropicTool           `json:"tools"`
	TemplateArgs map[string]json.RawMessage `json:"chat_template_kwargs"`
	ToolChoice   struct {
		Type string `json:"type"`
	} `json:"tool_choice"`
	Thinking struct {
		Type string `json:"type"`
	} `json:"thinking"`
	Output struct {
		Effort json.RawMessage `json:"effort"`
	} `json:"output_config"`
}

type anthropicMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type anthropicTool struct {
	Name         string          `json:"name"`
	Description  json.RawMessage `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	Strict       json.RawMessage `json:"strict"`
	DeferLoading json.RawMessage `json:"defer_loading"`
}

type anthropicBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Source    json.RawMessage `json:"source"`
	ID        string          `json:"id"`
	ToolUseID string          `json:"tool_use_id"`
	Name      string          `json:"name"`
	ToolName  string          `json:"tool_name"`
	Input     json.RawMessage `json:"input"`
	Content   json.RawMessage `json:"content"`
	Thinking  *string         `json:"thinking"`
}

// messagesReader turns a body of Messages into a chat.
type messagesReader struct {
	body  anthropicBody
	shape shape
	// other are the choices to be made in the other way than usual: to merge the system
	// messages, to take little thinking for none, to leave out tools.
	other shape
	chat  []chatMessage
}

// convertMessages turns a body of Messages into a chat, with some choices made in the
// other way than usual. It returns what the body has.
func convertMessages(body []byte, other shape) (*chatBody, shape, error) {
	r := messagesReader{other: other}
	if err := sonic.Unmarshal(body, &r.body); err != nil {
		return nil, 0, err
	}
	if err := r.read(); err != nil {
		return nil, 0, err
	}
	b := &r.body
	effort := b.Output.Effort
	if isSet(effort) {
		r.shape |= hasEffort
	}
	if b.Thinking.Type == "disabled" {
		r.shape |= noThinking
		effort = json.RawMessage(`"none"`)
		if other&noThinking != 0 {
			effort = json.RawMessage(`"low"`)
		}
	}
	c := &chatBody{Model: b.Model, Messages: r.chat, Args: templateArgs(b.TemplateArgs, effort)}
	if b.Tools != nil {
		r.shape |= hasTools
		if b.ToolChoice.Type == "none" {
			r.shape |= noTools
		}
		if r.shape&other&noTools == 0 {
			tools, err := anthropicTools(*b.Tools)
			if err != nil {
				return nil, 0, err
			}
			c.Tools = &tools
		}
	}
	return c, r.shape, nil
}

// read converts the system prompt and the messages.
func (r *messagesReader) read() error {
	system, err := r.systemText(r.body.System)
	if err != nil {
		return err
	}
	merge := r.other&inlineSystem != 0
	var rest []anthropicMessage
	for _, m := range r.body.Messages {
		if m.Role == "system" && merge {
			r.shape |= inlineSystem
			text, err := r.systemText(m.Content)
			if err != nil {
				return err
			}
			system += text
			continue
		}
		rest = append(rest, m)
	}
	if system != "" {
		r.add(chatMessage{Role: "system", Content: quoted(system)})
	}
	for _, m := range rest {
		if err := r.message(m); err != nil {
			return err
		}
	}
	if n := len(r.body.Messages); n == 0 {
		return errForm
	} else if r.body.Messages[n-1].Role == "assistant" {
		r.shape |= endsInAnswer
	}
	return nil
}

func (r *messagesReader) add(m chatMessage) { r.chat = append(r.chat, m) }

// message converts a message.
func (r *messagesReader) message(m anthropicMessage) error {
	switch m.Role {
	case "system":
		r.shape |= inlineSystem
		text, err := r.systemText(m.Content)
		if err == nil && text != "" {
			r.add(chatMessage{Role: "system", Content: quoted(text)})
		}
		return err
	case "user", "assistant":
	default:
		return errForm
	}
	var text string
	if sonic.Unmarshal(m.Content, &text) == nil && isSet(m.Content) {
		r.add(chatMessage{Role: m.Role, Content: quoted(text)})
		return nil
	}
	var blocks []anthropicBlock
	if err := sonic.Unmarshal(m.Content, &blocks); err != nil {
		return err
	}
	out := chatMessage{Role: m.Role}
	var parts []chatPart
	for i := range blocks {
		var err error
		if parts, err = r.block(&blocks[i], &out, parts); err != nil {
			return err
		}
	}
	switch {
	case len(parts) == 1 && parts[0].Type == "text":
		out.Content = quoted(*parts[0].Text)
	case len(parts) > 0:
		var err error
		if out.Content, err = partsOf(parts); err != nil {
			return err
		}
	case m.Role == "user":
		return nil // it had results of tools alone, which are messages of their own
	}
	r.add(out)
	return nil
}

// block converts a block of a message: into a part, or into m, or into a message before.
func (r *messagesReader) block(b *anthropicBlock, m *chatMessage, parts []chatPart) ([]chatPart, error) {
	switch b.Type {
	case "text":
		if b.Text != "" {
			parts = append(parts, chatPart{Type: "text", Text: &b.Text})
		}
	case "image":
		image, err := r.image(b.Source)
		if err != nil {
			return nil, err
		}
		parts = append(parts, image)
	case "thinking":
		r.shape |= hasThoughts
		if b.Thinking != nil {
			thoughts := *b.Thinking
			if m.Reasoning != nil {
				thoughts = *m.Reasoning + thoughts
			}
			m.Reasoning = &thoughts
		}
	case "redacted_thinking", "tool_reference":
	case "tool_use":
		r.shape |= hasCalls
		arguments := "{}"
		if isSet(b.Input) {
			arguments = string(b.Input)
		}
		m.ToolCalls = append(m.ToolCalls, newCall(b.ID, b.Name, arguments))
	case "tool_result":
		r.shape |= hasResults
		if m.Role != "user" {
			return nil, errForm
		}
		return parts, r.result(b)
	default:
		return nil, errForm
	}
	return parts, nil
}

// result converts the result of a tool, which becomes a message before the one that it
// is in.
func (r *messagesReader) result(b *anthropicBlock) error {
	var text string
	var images, references []chatPart
	if isSet(b.Content) && sonic.Unmarshal(b.Content, &text) != nil {
		var items []anthropicBlock
		if err := sonic.Unmarshal(b.Content, &items); err != nil {
			return err
		}
		var texts []string
		for _, item := range items {
			switch item.Type {
			case "text":
				texts = append(texts, item.Text)
			case "image":
				image, err := r.image(item.Source)
				if err != nil {
					return err
				}
				images = append(images, image)
			case "tool_reference":
				r.shape |= hasReferences
				name := item.ToolName
				if name == "" {
					name = item.Name
				}
				references = append(references, chatPart{Type: "tool_reference", Name: name})
			}
		}
		text = strings.Join(texts, "\n")
	}
	r.add(chatMessage{Role: "tool", ToolCallID: &b.ToolUseID, Content: quoted(text)})
	for _, more := range []struct {
		message chatMessage
		parts   []chatPart
	}{{chatMessage{Role: "user"}, images}, {chatMessage{Role: "tool", ToolCallID: &b.ToolUseID}, references}} {
		if len(more.parts) == 0 {
			continue
		}
		var err error
		if more.message.Content, err = partsOf(more.parts); err != nil {
			return err
		}
		r.add(more.message)
	}
	return nil
}

// image converts the source of an image.
func (r *messagesReader) image(source json.RawMessage) (chatPart, error) {
	r.shape |= hasImages
	var s struct {
		Type      string `json:"type"`
		URL       string `json:"url"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	}
	if err := sonic.Unmarshal(source, &s); err != nil {
		return chatPart{}, err
	}
	switch s.Type {
	case "url":
	case "base64":
		if s.MediaType == "" {
			s.MediaType = "image/jpeg"
		}
		s.URL = "data:" + s.MediaType + ";base64," + s.Data
	default:
		return chatPart{}, errForm
	}
	return chatPart{Type: "image_url", ImageURL: &imageURL{s.URL}}, nil
}

// systemText returns the text of a system prompt: a text, or blocks of text.
func (r *messagesReader) systemText(content json.RawMessage) (string, error) {
	var text string
	if !isSet(content) || sonic.Unmarshal(content, &text) == nil {
		return text, nil
	}
	var blocks []anthropicBlock
	if err := sonic.Unmarshal(content, &blocks); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, block := range blocks {
		switch {
		case block.Type != "text":
			return "", errForm // changes of tools, among others
		case strings.HasPrefix(block.Text, prompt.BillingHeader):
			r.shape |= hasBilling
		default:
			b.WriteString(block.Text)
		}
	}
	return b.String(), nil
}

// anthropicTools converts definitions of tools.
func anthropicTools(list []anthropicTool) ([]chatTool, error) {
	tools := make([]chatTool, 0, len(list))
	for _, t := range list {
		schema, err := withType(t.InputSchema)
		if err != nil {
			return nil, err
		}
		tools = append(tools, chatTool{Type: "function", Function: chatFunction{
			Name: t.Name, Description: t.Description, Parameters: schema, Strict: t.Strict, DeferLoading: t.DeferLoading,
		}})
	}
	return tools, nil
}

// withType returns a schema that says that it is one of an object, if it says nothing.
func withType(schema json.RawMessage) (json.RawMessage, error) {
	var keys map[string]json.RawMessage
	if err := sonic.Unmarshal(schema, &keys); err != nil {
		return nil, err
	}
	if keys == nil {
		return nil, errForm // a tool of Anthropic's own servers
	}
	if _, ok := keys["type"]; ok {
		return schema, nil
	}
	text := strings.TrimSpace(string(schema))
	text = strings.TrimRight(strings.TrimSuffix(text, "}"), " \t\r\n")
	if len(keys) > 0 {
		text += ","
	}
	return json.RawMessage(text + `"type":"object"}`), nil
}
