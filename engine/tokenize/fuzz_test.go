package tokenize

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"
)

// FuzzAnswer has an engine answer with anything. It is an error, or a list of tokens for
// each prompt, no more than the answer has room for.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		`{"count":3,"max_model_len":4096,"tokens":[1,266,80],"token_strs":null}`, `{"token_ids":[1,2]}`, `{"prompt":"a b"}`,
		`{"tokens":[4294967296]}`, `{"tokens":[-1]}`, `{"tokens":[1.5,1e3]}`, `{"tokens":{"a":[[[[`, `[]`, `null`, `{"tokens":null,"token_ids":[]}`,
	} {
		f.Add([]byte(s), uint16(200))
	}
	f.Add([]byte(`{}`), uint16(404))
	var answer []byte
	var status int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write(answer)
	}))
	f.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://")
	tokenizer := New(metrics.NewSet())
	f.Fuzz(func(t *testing.T, text []byte, code uint16) {
		answer, status = text, 200+int(code)%400
		for form, body := range map[Form]string{
			Completions: `{"model":"m","prompt":["a","b"]}`, Chat: `{"model":"m","messages":[],"chat_template_kwargs":{"a":1}}`,
			Messages: `{"model":"m","messages":[{"role":"user","content":"a"}]}`, Responses: `{"model":"m","input":"a"}`,
		} {
			q, err := newQuestion([]byte(body), form)
			if err != nil {
				t.Fatal(err)
			}
			tokenizer.learn(address, func(a *api) { *a = api{} }) // which API it has is not known
			lists, err := tokenizer.ask(address, q)
			if err != nil {
				continue
			}
			if len(lists) == 0 || len(lists) > maxPrompts {
				t.Fatalf("%d lists", len(lists))
			}
			for _, tokens := range lists {
				if len(tokens) > len(text) {
					t.Fatalf("%d tokens in %d bytes", len(tokens), len(text))
				}
			}
		}
	})
}
