package prompt

import (
	"strings"
	"testing"
)

// A byte order mark hides nothing.
func TestByteOrderMark(t *testing.T) {
	b := scan("\xef\xbb\xbf {\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"abc\"}]}", ChatCompletions)
	if string(b.Model) != "m" || !b.Complete || b.TextBytes != len("userabc") || b.Opaque {
		t.Errorf("%+v", b)
	}
}

// What is not read is counted by its length.
func TestUnseenText(t *testing.T) {
	text := strings.Repeat("word ", 1000)
	wide := strings.Join(strings.Split(`{"messages":[{"role":"user","content":"`+text+`"}]}`, ""), "\x00")
	for _, c := range []struct {
		why, body string
		endpoint  Endpoint
		least     int
	}{
		{"UTF-16", wide, ChatCompletions, len(text)},
		{"an array", `["` + text + `"]`, Completions, len(text)},
		{"another endpoint", `{"text":"` + text + `","input_ids":[1]}`, Other, len(text)},
		{"another endpoint, cut", `{"text":"` + text, Other, len(text)},
		{"documents", `{"documents":[{"title":"` + text + `"}]}`, ChatCompletions, len(text)},
		{"a template", `{"chat_template":"` + text + `"}`, ChatCompletions, len(text)},
		{"settings of a template", `{"chat_template_kwargs":{"x":"` + text + `"}}`, ChatCompletions, len(text)},
	} {
		if b := scan(c.body, c.endpoint); b.TextBytes+b.Unseen < c.least || b.TextBytes+b.Unseen > len(c.body) {
			t.Errorf("%s: %d bytes of text and %d unseen, want at least %d", c.why, b.TextBytes, b.Unseen, c.least)
		}
	}
	if b := scan("--boundary\r\nContent-Disposition: form-data\r\n\r\n"+text, Other); b.Unseen != 0 || b.MediaTokens != maxAudioTokens {
		t.Errorf("a form: %d bytes, %d tokens", b.Unseen, b.MediaTokens)
	}
}

// Numbers count however they are written, as the engines take them.
func TestNumbers(t *testing.T) {
	for token, want := range map[string]int{
		`100000`: 100_000, `1e5`: 100_000, `1E+05`: 100_000, `100000.0`: 100_000, `1000000e-1`: 100_000, `"100000"`: 100_000, `" 7 "`: 7,
		`0`: 0, `0.0`: 0, `0e9`: 0, `2147483647`: maxInt, `1.5`: -1, `15e-1`: -1, `1e10`: -1, `1e9999`: -1, `1e99999`: -1, `1e`: -1, `1.`: -1, `01`: -1, `.5`: -1,
		`99999999999999999999999`: -1, `""`: -1, `"x"`: -1, `-`: -1, `-5`: -1, `null`: -1,
	} {
		if b := scan(`{"max_tokens":`+token+`,"n":1}`, ChatCompletions); b.MaxTokens != want {
			t.Errorf("%s: %d, want %d", token, b.MaxTokens, want)
		}
	}
	if b := scan(`{"prompt":[1e0,2.0,3]}`, Completions); b.TokenIDs != 3 {
		t.Errorf("%d token ids", b.TokenIDs)
	}
}

// A body that names two models is known to.
func TestAmbiguousModel(t *testing.T) {
	for body, want := range map[string]bool{
		`{"model":"a"}`: false, `{"model":"a","model":"a"}`: false, `{"x":{"model":"b"},"model":"a"}`: false,
		`{"model":"a","model":"b"}`: true, `{"model":"a","mod\u0065l":"b"}`: true, `{"model":"a","model":null}`: true, `{"model":1,"model":"a"}`: true,
	} {
		if b := scan(body, ChatCompletions); b.Ambiguous != want {
			t.Errorf("%s: %v", body, b.Ambiguous)
		}
	}
	var b Body
	b.Scan([]byte(`{"model":"a","messages":[{"content":"long`), ChatCompletions, 0)
	if b.ScanTail([]byte(`text"}],"model":"b"}`)); !b.Ambiguous {
		t.Error("the end of the body names another model")
	}
}

// Servers decode the escapes of a path.
func TestEscapedPath(t *testing.T) {
	for path, want := range map[string]Endpoint{
		"/v1/chat/%63ompletions": ChatCompletions, "/v1/chat%2fcompletions": ChatCompletions, "/v1/%zz/completions%": Other,
		strings.Repeat("/%61", 100) + "/embeddings": Embeddings, "/completions%3Fx": Other,
	} {
		if got := EndpointOf([]byte(path)); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
