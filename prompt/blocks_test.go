package prompt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestEqualPrompts has bodies whose prompt is the same.
func TestEqualPrompts(t *testing.T) {
	for _, c := range []struct {
		e    Endpoint
		a, b string
	}{
		{ChatCompletions, `{"messages":[{"role":"user","content":"A/b\n"}],"model":"m"}`,
			"\t{ \"model\" : \"x\", \"messages\" : [ { \"content\" : \"\\u0041\\u002Fb\\u000A\",\r\n \"role\" : \"\\u0075ser\" } ] }"},
		{ChatCompletions, `{"messages":[{"role":"user","content":"a"}]}`,
			`{"messages":[{"role":"user","content":[{"cache_control":{"type":"ephemeral"},"type":"text","text":"a"}]}]}`},
		{ChatCompletions, `{"messages":[{"role":"assistant","content":"a","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]}`,
			`{"messages":[{"tool_calls":[{"id":"1","function":{"arguments":"{}","name":"f"}}],"refusal":null,"content":"a","role":"assistant"}]}`},
		{ChatCompletions, `{"tools":[{"a":1}],"messages":[{"role":"user","content":"a"}]}`,
			`{"messages":[{"role":"user","content":"a"}],"tools":[{"a":1}]}`},
		{ChatCompletions, `{"messages":[{"role":"user","content":"a"}]}`, `{"messages":[{"role":"user","content":"a"}],"tools":[ ],"functions":null}`},
		{ChatCompletions, `{"messages":[{"role":"user","content":[{"image_url":"http://i"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"detail":"low","url":"http://i"}}]}]}`},
		{Messages, `{"system":"s","messages":[]}`, `{"messages":[],"system":[{"type":"text","text":"s"}]}`},
		{Responses, `{"input":"a"}`, `{"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]}]}`},
		{Completions, `{"prompt":"a"}`, `{"prompt":["a"]}`},
		{Completions, `{"prompt":[1,2]}`, `{"prompt":[[ 1 , 2 ]]}`},
		{Rerank, `{"query":"q","documents":["a","b"]}`, `{"documents":[{"text":"a"},"b"],"query":"q"}`},
	} {
		a, b := blocks(scan(c.a, c.e)), blocks(scan(c.b, c.e))
		if len(a) == 0 || !slices.Equal(a, b) {
			t.Errorf("different blocks (%d and %d):\n%s\n%s", len(a), len(b), c.a, c.b)
		}
	}
}

// TestDifferentPrompts has, per endpoint, bodies of which no two have the same
// prompt, though the text in them runs together to the same.
func TestDifferentPrompts(t *testing.T) {
	for e, bodies := range map[Endpoint][]string{
		ChatCompletions: {
			`{"messages":[{"role":"user","content":"ab"}]}`,
			`{"messages":[{"role":"system","content":"ab"}]}`,
			`{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}`,
			`{"messages":[{"role":"user","content":["a","b"]}]}`,
			`{"messages":[{"role":"user","content":"a","name":"b"}]}`,
			`{"messages":[{"role":"user","content":"aÿTb"}]}`,
			`{"messages":[{"role":"user","content":"a\u00ffTb"},{"role":"user"}]}`,
			`{"messages":[{"role":"usera","content":"b"}]}`,
			`{"messages":[{"role":"user","content":"ab"}],"tools":[1]}`,
			`{"messages":[{"role":"user","content":"ab"}],"functions":[1]}`,
			`{"messages":[{"role":"user","content":[{"image_url":"ab"}]}]}`,
			`{"messages":[{"role":"user","content":[{"image_url":"ac"}]}]}`,
			`{"messages":[{"role":"user","tool_calls":[{"function":{"name":"a","arguments":"b"}}]}]}`,
			`{"messages":[{"role":"user","reasoning_content":"ab"}]}`,
		},
		Completions: {
			`{"prompt":"ab"}`, `{"prompt":["a","b"]}`, `{"prompt":"a","suffix":"b"}`, `{"prompt":[1,2]}`, `{"prompt":[[1],[2]]}`,
			`{"prompt":[258]}`, `{"prompt":[1,2,3]}`,
		},
		Score:     {`{"text_1":["a","b"],"text_2":"c"}`, `{"text_1":"a","text_2":["b","c"]}`},
		Responses: {`{"instructions":"a","input":"b"}`, `{"input":[{"role":"user","content":["a","b"]}]}`},
	} {
		for i := range bodies {
			for j := range i {
				if slices.Equal(blocks(scan(bodies[i], e)), blocks(scan(bodies[j], e))) {
					t.Errorf("the same blocks:\n%s\n%s", bodies[i], bodies[j])
				}
			}
		}
	}
}

// TestConversationGrows checks that each turn's blocks begin the next turn's,
// with the tools behind the messages, as the official Python client writes them.
func TestConversationGrows(t *testing.T) {
	shapes := map[Endpoint]string{
		ChatCompletions: `{"messages":[%s],"model":"m","tools":[{"type":"function","function":{"name":"f"}}]}`,
		Messages:        `{"messages":[%s],"model":"m","system":[{"type":"text","text":"be brief"}],"tools":[{"name":"f"}]}`,
		Responses:       `{"input":[%s],"model":"m","instructions":"be brief","tools":[{"type":"function","name":"f"}]}`,
	}
	for e, shape := range shapes {
		t.Run(e.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				g := gen{t}
				turns := []string{g.message()}
				before := blocks(scan(fmt.Sprintf(shape, turns[0]), e))
				for range 4 {
					turns = append(turns, g.message())
					after := blocks(scan(fmt.Sprintf(shape, strings.Join(turns, ",")), e))
					if len(after) <= len(before) || !slices.Equal(after[:len(before)], before) {
						t.Fatalf("the prefix is lost: %s", turns)
					}
					before = after
				}
			})
		})
	}
	ids := scan(`{"prompt":[1,2,3]}`, Completions)
	more := scan(`{"prompt":[1,2,3,4]}`, Completions)
	if a, b := blocks(ids), blocks(more); !slices.Equal(a, b[:len(a)]) {
		t.Error("the prefix of token ids is lost")
	}
}

// TestCutTools cuts a body in the tools behind its messages. The stream starts
// with tools, so it must not go on with messages.
func TestCutTools(t *testing.T) {
	head := `{"messages":[{"role":"user","content":"hello"}],"tools":[`
	doc := head + `{"type":"function","function":{"name":"f"}}],"model":"m"}`
	whole := blocks(scan(doc, ChatCompletions))
	last := 0
	for cut := len(head); cut < len(doc); cut++ {
		hs := blocks(scan(doc[:cut], ChatCompletions))
		if len(hs) < last || len(hs) > len(whole) || !slices.Equal(hs, whole[:len(hs)]) {
			t.Errorf("no prefix: %s", doc[:cut])
		}
		last = len(hs)
	}
	if last != len(whole) {
		t.Errorf("%d of %d bytes at the end", last, len(whole))
	}
}

// TestBlockSizes checks that only full blocks are hashed and that each size
// hashes the same stream.
func TestBlockSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := gen{t}.document(ChatCompletions, false, false).text
		b := scan(d, ChatCompletions)
		stream := consult(members(d), ChatCompletions).bytes
		size := rapid.IntRange(1, 100).Draw(t, "blockBytes")
		seed := rapid.Uint64().Draw(t, "seed")
		got := b.Blocks([]uint64{42}, seed, size)
		if want := append([]uint64{42}, chainOf(stream, seed, size)...); !slices.Equal(got, want) {
			t.Fatalf("%d of %q: %x, want %x", size, stream, got, want)
		}
	})
	b := scan(`{"prompt":"abc"}`, Completions)
	if len(b.Blocks(nil, 0, 0))+len(b.Blocks(nil, 0, -1))+len(new(Body).Blocks(nil, 0, 1)) != 0 {
		t.Error("blocks of no size")
	}
}

func TestSeed(t *testing.T) {
	seen := map[uint64]string{}
	for _, s := range [][3]string{{}, {"a"}, {"", "a"}, {"", "", "a"}, {"a", "b"}, {"ab"}, {"", "ab"}, {"a", "", "b"}, {"a", "b", "c"}} {
		h := Seed(unkeyed, []byte(s[0]), []byte(s[1]), []byte(s[2]))
		if other, ok := seen[h]; ok {
			t.Errorf("%q and %s have the same seed", s, other)
		}
		seen[h] = fmt.Sprintf("%q", s)
	}
	if Seed(unkeyed, nil, nil, nil) != Seed(unkeyed, []byte{}, []byte{}, []byte{}) {
		t.Error("nil and empty differ")
	}
}
