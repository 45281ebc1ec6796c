package prompt

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/bytedance/sonic/ast"
)

// The oracle reads a whole valid document with sonic and builds the fields and
// the canonical stream by the rules of the package comment, without regard to
// speed.

type oracle struct {
	model, user, salt []byte
	maxTokens, n      int
	stream            bool
	priority          int
	hasPriority       bool
	text, ids, media  int
	messages          int
	bytes             []byte // the canonical stream
}

// entry is a member of an object, in the document's order.
type entry struct {
	key   string
	value ast.Node
}

func entries(n ast.Node) (es []entry) {
	must(n.ForEach(func(path ast.Sequence, v *ast.Node) bool {
		es = append(es, entry{*path.Key, *v})
		return true
	}))
	return es
}

func elements(n ast.Node) (vs []ast.Node) {
	must(n.ForEach(func(_ ast.Sequence, v *ast.Node) bool {
		vs = append(vs, *v)
		return true
	}))
	return vs
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func raw(n ast.Node) string {
	s, err := n.Raw()
	must(err)
	return s
}

func str(n ast.Node) string {
	var s string
	must(json.Unmarshal([]byte(raw(n)), &s))
	return s
}

// short returns the text of a string as JSON writes it at its shortest. A slash
// that is escaped stays so.
func short(n ast.Node) string {
	const slash = "\ue000"
	pairs := strings.NewReplacer(`\\`, `\\`, `\/`, slash)
	var s string
	must(json.Unmarshal([]byte(pairs.Replace(raw(n))), &s))
	return strings.NewReplacer(`"`, `\"`, `\`, `\\`, "\b", `\b`, "\f", `\f`, "\n", `\n`, "\r", `\r`, "\t", `\t`, slash, `\/`).Replace(s)
}

func wantString(n ast.Node) []byte {
	if n.TypeSafe() != ast.V_STRING {
		return nil
	}
	return append([]byte{}, str(n)...)
}

func wantInt(n ast.Node) (int, bool) {
	if n.TypeSafe() != ast.V_NUMBER {
		return 0, false
	}
	f, err := strconv.ParseFloat(raw(n), 64)
	if err != nil || f > 1<<31-1 || f < -(1<<31-1) || f != math.Trunc(f) {
		return 0, false
	}
	return int(f), true
}

// consult returns what Scan must see in a whole document whose top-level members
// are es.
func consult(es []entry, e Endpoint) *oracle {
	o := &oracle{maxTokens: -1, n: 1}
	maxTokens := map[string]int{}
	var parts [groupCount]piece
	for _, m := range es {
		switch m.key {
		case "model":
			o.model = wantString(m.value)
		case "user":
			o.user = wantString(m.value)
		case "cache_salt":
			o.salt = wantString(m.value)
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			delete(maxTokens, m.key)
			if i, ok := wantInt(m.value); ok && i >= 0 {
				maxTokens[m.key] = i
			}
		case "n":
			o.n = 1
			if i, ok := wantInt(m.value); ok && i >= 1 && i <= 16384 {
				o.n = i
			}
		case "stream":
			o.stream = m.value.TypeSafe() == ast.V_TRUE
		case "priority":
			o.priority, o.hasPriority = wantInt(m.value)
		default:
			if g, p := partOf(e, m); len(p.bytes) > 0 {
				parts[g] = p
			}
		}
	}
	keys := []string{"max_completion_tokens", "max_tokens"}
	if e == Responses {
		keys = []string{"max_output_tokens"}
	}
	for _, k := range keys {
		if i, ok := maxTokens[k]; ok {
			o.maxTokens = i
			break
		}
	}
	for g, p := range parts {
		if len(p.bytes) > 0 {
			o.bytes = append(o.bytes, 0xFF, 'a'+byte(g))
			o.bytes = append(o.bytes, p.bytes...)
		}
		o.text += p.text
		o.ids += p.ids
		o.media += p.media
		o.messages += p.messages
	}
	return o
}

// piece is a stretch of the stream and what it counts.
type piece struct {
	bytes                      []byte
	text, ids, media, messages int
}

func (p *piece) put(tag byte, s string) {
	p.bytes = append(append(p.bytes, 0xFF, tag), s...)
	p.text += len(s) - strings.Count(s, `\`)
}

func (p *piece) join(q piece) {
	p.bytes = append(p.bytes, q.bytes...)
	p.text += q.text
	p.ids += q.ids
	p.media += q.media
	p.messages += q.messages
}

func one(tag byte, s string) (p piece) {
	p.put(tag, s)
	return p
}

func partOf(e Endpoint, m entry) (groupKey, piece) {
	chat := e == ChatCompletions || e == Messages || e == Tokenize || e == Embeddings
	two := e == Rerank || e == Score
	v := m.value
	switch k := m.key; {
	case chat && k == "messages", e == Responses && k == "input":
		return groupPrompt, wantMessages(v, e)
	case e == Messages && k == "system", e == Responses && k == "instructions":
		p := one('R', "system")
		c := wantContent(v, 1)
		if len(c.bytes) == 0 {
			return groupSystem, piece{}
		}
		p.join(c)
		return groupSystem, p
	case (chat || e == Responses) && k == "tools", chat && k == "functions":
		g := groupTools
		if k == "functions" {
			g = groupFunctions
		}
		if v.TypeSafe() != ast.V_ARRAY || len(elements(v)) == 0 {
			return g, piece{}
		}
		return g, one('D', raw(v))
	case chat && (k == "documents" || k == "chat_template" || k == "chat_template_kwargs"):
		g := map[string]groupKey{"documents": groupContext, "chat_template": groupTemplate, "chat_template_kwargs": groupSettings}[k]
		switch v.TypeSafe() {
		case ast.V_STRING:
			return g, one('T', short(v))
		case ast.V_ARRAY:
			if len(elements(v)) > 0 {
				return g, one('D', raw(v))
			}
		case ast.V_OBJECT:
			if len(entries(v)) > 0 {
				return g, one('D', raw(v))
			}
		}
		return g, piece{}
	case (e == Completions || e == Tokenize) && k == "prompt", e == Embeddings && k == "input",
		two && (k == "query" || k == "queries" || k == "text_1" || k == "data_1"):
		return groupPrompt, wantTexts(v, 0)
	case e == Completions && k == "suffix", two && (k == "documents" || k == "text_2" || k == "data_2"):
		return groupDocuments, wantTexts(v, 0)
	}
	return 0, piece{}
}

func wantTexts(v ast.Node, depth int) (p piece) {
	switch v.TypeSafe() {
	case ast.V_STRING:
		return one('T', short(v))
	case ast.V_OBJECT:
		return wantItem(v, 1, false)
	case ast.V_ARRAY:
		if depth > 1 {
			return p
		}
		running := false
		for _, el := range elements(v) {
			// A number that starts with a minus sign starts no run of ids, but
			// does not end one either way: it stands between two.
			if el.TypeSafe() != ast.V_NUMBER || raw(el)[0] == '-' {
				running = false
				p.join(wantTexts(el, depth+1))
				continue
			}
			if !running {
				p.bytes = append(p.bytes, 0xFF, 0xFF, 0xFF, 0xFF)
				running = true
			}
			if id, ok := wantInt(el); ok {
				p.bytes = binary.LittleEndian.AppendUint32(p.bytes, uint32(id))
				p.ids++
			}
		}
	}
	return p
}

func wantMessages(v ast.Node, e Endpoint) (p piece) {
	switch v.TypeSafe() {
	case ast.V_STRING:
		if e == Responses {
			p = one('R', "user")
			p.put('T', short(v))
			p.messages = 1
		}
	case ast.V_ARRAY:
		for _, m := range elements(v) {
			if m.TypeSafe() == ast.V_OBJECT {
				p.join(wantItem(m, 0, true))
				p.messages++
			}
		}
	}
	return p
}

func wantContent(v ast.Node, depth int) (p piece) {
	switch v.TypeSafe() {
	case ast.V_STRING:
		return one('T', short(v))
	case ast.V_OBJECT:
		return wantItem(v, depth, false)
	case ast.V_ARRAY:
		for _, el := range elements(v) {
			if t := el.TypeSafe(); t == ast.V_STRING || t == ast.V_OBJECT {
				p.join(wantContent(el, depth))
			}
		}
	}
	return p
}

func wantItem(v ast.Node, depth int, message bool) piece {
	if depth > 3 {
		return piece{}
	}
	var role, content, refusal, reasoning, name, arguments, calls piece
	if message {
		role = one('R', "")
	}
	set := func(to *piece, p piece) {
		if len(p.bytes) > 0 {
			*to = p
		}
	}
	for _, m := range entries(v) {
		text := func(tag byte) (p piece) {
			if m.value.TypeSafe() == ast.V_STRING {
				p = one(tag, short(m.value))
			}
			return p
		}
		composite := m.value.TypeSafe() == ast.V_ARRAY || m.value.TypeSafe() == ast.V_OBJECT
		switch m.key {
		case "role":
			if message {
				set(&role, text('R'))
			}
		case "content", "text", "output":
			set(&content, wantContent(m.value, depth+1))
		case "image_url", "image", "source", "file":
			set(&content, wantMedia(m.value, func(int) int { return 765 }))
		case "video_url":
			set(&content, wantMedia(m.value, func(int) int { return 6120 }))
		case "audio_url":
			set(&content, wantMedia(m.value, func(int) int { return 250 }))
		case "input_audio":
			set(&content, wantMedia(m.value, func(n int) int { return min(max(n/1706, 25), 750) }))
		case "refusal":
			set(&refusal, text('T'))
		case "reasoning", "reasoning_content", "thinking":
			set(&reasoning, text('K'))
		case "name":
			set(&name, text('N'))
		case "arguments", "input":
			if composite {
				set(&arguments, one('A', raw(m.value)))
			} else {
				set(&arguments, text('A'))
			}
		case "tool_calls", "function", "function_call":
			if composite {
				set(&calls, wantContent(m.value, depth+1))
			}
		}
	}
	var p piece
	for _, f := range []piece{role, content, refusal, reasoning, name, arguments, calls} {
		p.join(f)
	}
	return p
}

func wantMedia(v ast.Node, tokens func(int) int) (p piece) {
	switch v.TypeSafe() {
	case ast.V_STRING:
		inside := raw(v)
		inside = inside[1 : len(inside)-1]
		p.bytes = binary.LittleEndian.AppendUint64([]byte{0xFF, 'M'}, unkeyed.Sum(0, []byte(inside)))
		p.media = tokens(len(inside))
	case ast.V_OBJECT:
		for _, m := range entries(v) {
			switch m.key {
			case "url", "data", "file_data", "file_id":
				if m.value.TypeSafe() == ast.V_STRING {
					p = wantMedia(m.value, tokens)
				}
			}
		}
	}
	return p
}

// chainOf hashes a stream as Blocks must.
func chainOf(stream []byte, seed uint64, blockBytes int) (hs []uint64) {
	for ; len(stream) >= blockBytes; stream = stream[blockBytes:] {
		seed = unkeyed.Sum(seed, stream[:blockBytes])
		hs = append(hs, seed)
	}
	return hs
}
