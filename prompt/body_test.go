package prompt

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestEndpointOf(t *testing.T) {
	for path, want := range map[string]Endpoint{
		"/v1/chat/completions": ChatCompletions, "/chat/completions": ChatCompletions, "chat/completions": ChatCompletions,
		"/openai/deployments/x/chat/completions?api-version=1": ChatCompletions, "/v1//chat//completions//": ChatCompletions,
		"/v1/completions": Completions, "/nochat/completions": Completions, "completions": Completions,
		"/v1/embeddings/": Embeddings, "http://h/v1/responses#x": Responses, "/llm/v1/messages": Messages,
		"/v2/rerank": Rerank, "/score": Score, "/tokenize?a=/b": Tokenize, "/v1/responses/input_tokens": Tokenize, "/v1/chat/completions/render": Tokenize,
		"": Other, "/": Other, "/v1/models": Other, "/v1/messages/count_tokens": Tokenize, "/xscore": Other, "/Score": Other, "?/score": Other,
	} {
		if got := EndpointOf([]byte(path)); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
	if s := Endpoint(200).String(); s != "other" {
		t.Errorf("an unknown endpoint is %q", s)
	}
}

// TestBroken gives what is no document: what was seen before stays, nothing
// fails.
func TestBroken(t *testing.T) {
	for _, s := range []string{
		``, ` `, `null`, `[1]`, `"x"`, "\x1f\x8b\x08\x00\x00", "\xef\xbb{}", `{`, `{{`, `{]`, `{"model"}`, `{"model":}`, `{model:"m"}`,
		`{"messages":[}]`, `{"messages":[{]}`, `{"messages":[{"content":[}]}`, `{"messages":{"role":`,
		`{"tools":[}`, `{"messages" "x"}`, `{,}`, `{"n":1 "model":"m"}`, `{"n":7`, `{"max_tokens":77`, `{"stream":true`,
		`{"model":"m`, `{"user":"\`, `{"priority":-`,
	} {
		for _, e := range endpoints {
			b := scan(s, e)
			b.Blocks(nil, 0, 1)
			if b.Complete || b.Model != nil || b.User != nil || b.N != 1 || b.Stream || b.MaxTokens != -1 || b.HasPriority {
				t.Errorf("%s: %+v", s, b)
			}
		}
	}
}

func TestInvalidUTF8(t *testing.T) {
	whole := "{\"model\":\"\xff\xfe\",\"messages\":[{\"role\":\"user\",\"content\":\"a\xff\xe2\x82\"}],\"n\":2}"
	b := scan(whole, ChatCompletions)
	if string(b.Model) != "\xff\xfe" || b.N != 2 || !b.Complete || b.TextBytes != len("user")+4 {
		t.Errorf("%+v", b)
	}
	all := blocks(b)
	for cut := range whole {
		hs := blocks(scan(whole[:cut], ChatCompletions))
		if len(hs) > len(all) || !slices.Equal(hs, all[:len(hs)]) {
			t.Errorf("cut at %d: no prefix", cut)
		}
	}
}

func TestDeepNesting(t *testing.T) {
	const levels = 100_000
	for _, open := range []string{`[`, `{"a":`} {
		shut := map[byte]string{'[': `]`, '{': `}`}[open[0]]
		deep := strings.Repeat(open, levels) + `1` + strings.Repeat(shut, levels)
		for _, key := range []string{"x", "messages", "prompt", "tools", "model"} {
			doc := `{"` + key + `":` + deep + `,"user":"u"}`
			for _, e := range endpoints {
				if b := scan(doc, e); !b.Complete || string(b.User) != "u" {
					t.Errorf("%s of %s: %+v", key, e, b)
				}
			}
		}
		part := strings.Repeat(`{"content":[`, levels) + strings.Repeat(`]}`, levels)
		if b := scan(`{"messages":[`+part+`]}`, ChatCompletions); b.Complete || b.Scanned != DefaultLimit {
			t.Errorf("%+v", b)
		}
	}
}

func TestLimit(t *testing.T) {
	for _, c := range []string{`\"`, `"`, `\`, `{`, `[`, "\xff"} {
		huge := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat(c, 10<<20/len(c)))
		var b Body
		b.Scan(huge, ChatCompletions, 0)
		if b.Complete || b.Scanned > DefaultLimit || string(b.Model) != "m" || b.TextBytes > DefaultLimit {
			t.Errorf("%q: %+v", c, b)
		}
		if cap(b.arena) > 4*DefaultLimit {
			t.Errorf("%q: %d bytes kept", c, cap(b.arena))
		}
		b.ScanTail(huge)
	}
}

// TestManyPieces has more messages than spans are kept: the text ends there, the
// scalars do not.
func TestManyPieces(t *testing.T) {
	message := `{"role":"u","content":"x"},`
	doc := `{"n":2,"messages":[` + strings.Repeat(message, maxSpans) + `{}],"model":"m","user":"\u0061"}`
	b := scan(doc, ChatCompletions)
	if b.Complete || b.N != 2 || string(b.Model) != "m" || string(b.User) != "a" || b.Scanned != len(doc) || len(b.spans) > maxSpans {
		t.Errorf("Complete %v N %d Model %q Scanned %d", b.Complete, b.N, b.Model, b.Scanned)
	}
	fewer := scan(`{"messages":[`+strings.Repeat(message, maxSpans/2)+`]}`, ChatCompletions)
	if got, want := blocks(b), blocks(fewer); !slices.Equal(got, want) {
		t.Errorf("%d blocks, want the %d of the messages that fit", len(got), len(want))
	}
}

func TestDuplicateKeys(t *testing.T) {
	b := scan(`{"model":"a","model":"b","n":2,"n":"x","user":"u","user":null,"messages":[{"role":"user","content":"long text"}],`+
		`"messages":[{"role":"user","content":"x"}],"messages":null,"max_tokens":5,"max_tokens":6}`, ChatCompletions)
	if string(b.Model) != "b" || b.N != 1 || b.User != nil || b.MaxTokens != 6 || b.MessageCount != 1 || b.TextBytes != len("userx") {
		t.Errorf("%+v", b)
	}
}

// TestReuse checks that a scan leaves nothing behind for the next.
func TestReuse(t *testing.T) {
	var b Body
	b.Scan([]byte(`{"model":"\u0061","user":"u","cache_salt":"s","max_tokens":1,"max_completion_tokens":2,"n":3,"stream":true,`+
		`"priority":4,"messages":[{"role":"user","content":[{"image_url":"x"},{"text":"y"}]}],"tools":[{}]}`), ChatCompletions, 0)
	if string(b.Model) != "a" || b.MaxTokens != 2 || !b.HasPriority || b.MediaTokens != imageTokens || !b.Complete {
		t.Fatalf("%+v", b)
	}
	b.Scan([]byte(`{}`), Other, 0)
	if s := wholeDiffers(&b, consult(nil, Other)); s != "" || b.Scanned != 2 {
		t.Errorf("%s: %+v", s, b)
	}
}

func TestNoAllocations(t *testing.T) {
	bodies := [][]byte{
		chatBody(1<<10, false), chatBody(64<<10, false), chatBody(64<<10, false)[:40<<10],
		[]byte(`{"\u006dodel":"\u0061","messages":[{"content":[{"type":"text","text":"\n"},{"image_url":{"url":"x"}}],"role":"user"}]}`),
		[]byte(`{"prompt":[[1,2,3],[4]],"messages":[}]`),
	}
	var b Body
	dst := make([]uint64, 0, 1<<16)
	path, lora := []byte("/v1/chat/completions"), []byte("lora")
	if n := testing.AllocsPerRun(20, func() {
		for _, data := range bodies {
			for e := range Tokenize + 1 {
				b.Scan(data, e, 0)
				b.ScanTail(data[len(data)/2:])
				dst = b.Blocks(dst[:0], Seed(unkeyed, b.Model, lora, b.CacheSalt), 64)
			}
		}
		EndpointOf(path)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSliceBounds(t *testing.T) {
	data := []byte(`{"model":"m","user":"\u0061","n":2}`)
	copied := bytes.Clone(data)
	var b Body
	b.Scan(data, Other, 0)
	_ = append(b.Model, "xxxx"...)
	_ = append(b.User, "xxxx"...)
	if !bytes.Equal(data, copied) {
		t.Error("appending to a field writes into the body")
	}
}
