package prompt

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// doc is a generated document and the places that decide what a cut leaves of it.
type doc struct {
	text string
	// Member i of the top level is wholly seen once seen[i] bytes are there: its
	// value, and for a number or a word its delimiter.
	seen []int
	// before[i] is the index of the comma or brace before member i; scalar[i]
	// says that its value is not composite.
	before []int
	scalar []bool
}

// gen draws documents. The order of keys, white space and the spelling of
// characters are arbitrary; keys are unique within an object.
type gen struct{ t *rapid.T }

func (g gen) pick(label string, of ...string) string { return rapid.SampledFrom(of).Draw(g.t, label) }
func (g gen) n(most int) int                         { return rapid.IntRange(0, most).Draw(g.t, "n") }

func (g gen) space() string { return g.pick("space", "", "", "", "", " ", "\n\t") }

// str draws a string literal that spells s in some way.
func (g gen) spell(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		how := g.n(9)
		switch {
		case how == 0 && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		case how == 0:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04X\u%04x`, hi, lo)
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '/' && how < 5:
			b.WriteString(`\/`)
		case r < ' ':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func (g gen) chars() string {
	s := rapid.SliceOfN(rapid.SampledFrom([]rune("ab ,:{}[]\"\\\n/ué€😀\x01")), 0, 12).Draw(g.t, "chars")
	return string(s)
}

func (g gen) str() string {
	if g.n(15) == 0 {
		return g.pick("lone", `"\ud800"`, `"\udc00x"`, `"\ud83d\u0041"`, `"\ud83d\\"`)
	}
	return g.spell(g.chars())
}

func (g gen) wrap(open, sep, end string, of ...string) string {
	var b strings.Builder
	b.WriteString(open + g.space())
	for i, s := range of {
		if i > 0 {
			b.WriteString(g.space() + sep + g.space())
		}
		b.WriteString(s)
	}
	b.WriteString(g.space() + end)
	return b.String()
}

func (g gen) array(of ...string) string { return g.wrap("[", ",", "]", of...) }

// object draws an object of some of the given keys and values, in any order.
func (g gen) object(pairs ...string) string {
	var ms []string
	for i := 0; i < len(pairs); i += 2 {
		if g.n(7) > 0 {
			ms = append(ms, g.spell(pairs[i])+g.space()+":"+g.space()+pairs[i+1])
		}
	}
	if len(ms) > 1 {
		ms = rapid.Permutation(ms).Draw(g.t, "order")
	}
	return g.wrap("{", ",", "}", ms...)
}

func (g gen) many(most int, f func() string) string {
	of := make([]string, g.n(most))
	for i := range of {
		of[i] = f()
	}
	return g.array(of...)
}

// other draws a value of any type.
func (g gen) other() string {
	switch g.n(7) {
	case 0:
		return g.str()
	case 1:
		return g.object("content", g.str(), "x", "[[[{}]]]")
	case 2:
		return g.array("1", g.str(), "null", "{}", "-2.5e+3")
	}
	return g.pick("literal", "null", "true", "false", "0", "-1", "77", "1.5", "1e3", "99999999999", "2147483647")
}

// mostly draws f's value, now and then one of a wrong type.
func (g gen) mostly(f func() string) string {
	if g.n(9) == 0 {
		return g.other()
	}
	return f()
}

func (g gen) media() string {
	return g.mostly(func() string {
		if g.n(1) == 0 {
			return g.str()
		}
		return g.object("detail", `"low"`, g.pick("where", "url", "data"), g.str())
	})
}

func (g gen) part() string {
	switch g.n(4) {
	case 0:
		return g.object("type", `"image_url"`, "image_url", g.media())
	case 1:
		return g.object("type", `"input_audio"`, "input_audio", g.media())
	case 2:
		return g.object("type", `"tool_use"`, "id", g.str(), "name", g.str(), "input", g.object("a", g.str()))
	}
	return g.object("type", `"text"`, "text", g.mostly(g.str), "cache_control", `{"type":"ephemeral"}`)
}

func (g gen) parts() string {
	if g.n(2) > 0 {
		return g.str()
	}
	return g.many(3, func() string { return g.mostly(g.part) })
}

func (g gen) call() string {
	return g.object("id", g.str(), "type", `"function"`,
		"function", g.object("name", g.str(), "arguments", g.str()))
}

func (g gen) message() string {
	pairs := []string{"role", g.mostly(func() string { return g.pick("role", `"user"`, `"assistant"`) }),
		"content", g.mostly(g.parts)}
	switch g.n(5) {
	case 0:
		pairs = append(pairs, "tool_calls", g.many(2, g.call), "refusal", g.pick("refusal", "null", `"no"`))
	case 1:
		pairs = append(pairs, "name", g.str(), "tool_call_id", g.str(), "reasoning_content", g.str())
	case 2:
		pairs = append(pairs, "output", "null", "function_call", g.object("name", g.str()))
	}
	return g.object(pairs...)
}

func (g gen) messages() string { return g.many(3, func() string { return g.mostly(g.message) }) }

func (g gen) texts() string {
	switch g.n(3) {
	case 0:
		return g.many(3, func() string { return g.mostly(g.str) })
	case 1:
		ids := func() string { return g.many(4, func() string { return fmt.Sprint(g.n(100000)) }) }
		if g.n(1) == 0 {
			return ids()
		}
		return g.many(3, ids)
	case 2:
		return g.many(2, func() string { return g.object("text", g.str()) })
	}
	return g.str()
}

func (g gen) tools() string {
	return g.many(2, func() string { return g.object("type", `"function"`, "function", g.object("name", g.str())) })
}

// textKeys are the keys that hold text for an endpoint, the last ones in the
// stream first.
func (g gen) textMembers(e Endpoint) (ms [][2]string) {
	add := func(key, value string) { ms = append(ms, [2]string{key, value}) }
	switch e {
	case ChatCompletions, Tokenize, Messages:
		add("messages", g.messages())
		if e == Messages {
			add("system", g.parts())
		}
		add("documents", g.other())
		add("tools", g.tools())
		add("chat_template_kwargs", g.other())
		add("chat_template", g.mostly(g.str))
	case Completions:
		add("suffix", g.str())
		add("prompt", g.texts())
	case Embeddings:
		add("input", g.texts())
	case Responses:
		add("input", g.pick("input", g.str(), g.messages()))
		add("instructions", g.str())
		add("tools", g.tools())
	case Rerank:
		add("documents", g.texts())
		add("query", g.str())
	case Score:
		add("text_2", g.texts())
		add("text_1", g.texts())
	default:
		add("messages", g.messages())
		add("prompt", g.texts())
	}
	return ms
}

// document draws a document. If inOrder is set, the text members come in the
// order of the stream; if repeat, scalars may come twice.
func (g gen) document(e Endpoint, inOrder, repeat bool) doc {
	text := g.textMembers(e)
	for i, j := 0, len(text)-1; i < j; i, j = i+1, j-1 {
		text[i], text[j] = text[j], text[i]
	}
	if !inOrder && len(text) > 1 {
		text = rapid.Permutation(text).Draw(g.t, "text order")
	}
	number := func() string { return g.mostly(func() string { return fmt.Sprint(g.n(9999)) }) }
	scalars := [][2]string{
		{"model", g.mostly(g.str)}, {"user", g.mostly(g.str)}, {"cache_salt", g.mostly(g.str)},
		{"max_tokens", number()}, {"max_completion_tokens", number()}, {"max_output_tokens", number()},
		{"n", number()}, {"stream", g.mostly(func() string { return g.pick("bool", "true", "false") })},
		{"priority", number()}, {"unknown", g.other()}, {"metadata", `{"model":"x","a":[1,{"n":2}]}`},
	}
	if repeat {
		scalars = append(scalars, [2]string{"model", g.mostly(g.str)}, [2]string{"max_tokens", number()})
	}
	scalars = rapid.Permutation(scalars).Draw(g.t, "scalars")[:g.n(len(scalars))]
	// Merge the two lists at random, keeping the order of each.
	var all [][2]string
	for len(text)+len(scalars) > 0 {
		if len(scalars) == 0 || len(text) > 0 && g.n(1) == 0 {
			all, text = append(all, text[0]), text[1:]
		} else {
			all, scalars = append(all, scalars[0]), scalars[1:]
		}
	}
	var d doc
	var b strings.Builder
	b.WriteString(g.space() + "{")
	for i, m := range all {
		if i > 0 {
			b.WriteString(g.space() + ",")
		}
		d.before = append(d.before, b.Len()-1)
		b.WriteString(g.space() + g.spell(m[0]) + g.space() + ":" + g.space() + m[1])
		seen := b.Len()
		if !strings.ContainsAny(m[1][len(m[1])-1:], `"]}`) {
			seen++
		}
		d.seen = append(d.seen, seen)
		d.scalar = append(d.scalar, m[1][0] != '{' && m[1][0] != '[')
	}
	b.WriteString(g.space() + "}" + g.space())
	d.text = b.String()
	if !json.Valid([]byte(d.text)) || !utf8.ValidString(d.text) {
		g.t.Fatalf("the generator is wrong: %s", d.text)
	}
	return d
}
