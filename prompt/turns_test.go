package prompt

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func turnsOf(t *testing.T, e Endpoint, body string, seed uint64) []uint64 {
	t.Helper()
	var b Body
	b.Scan([]byte(body), e, 0)
	return b.Turns(nil, seed)
}

// Each turn of a conversation ends with the hash of the whole of that turn, and
// begins with those of the turns before.
func TestTurnsGrowWithTheConversation(t *testing.T) {
	messages := []string{
		`{"role":"system","content":"be brief"}`,
		`{"content":"one","role":"user"}`,
		`{"role":"assistant","content":"two","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}`,
		`{"role":"user","content":[{"type":"text","text":"three"},{"type":"image_url","image_url":{"url":"u"}}]}`,
	}
	for _, rest := range []string{``, `,"tools":[{"name":"f"}]`} {
		var before []uint64
		for n := 1; n <= len(messages); n++ {
			body := fmt.Sprintf(`{"model":"m","messages":[%s]%s}`, strings.Join(messages[:n], ","), rest)
			turns := turnsOf(t, ChatCompletions, body, 7)
			if len(turns) != n || !slices.Equal(turns[:n-1], before) {
				t.Fatalf("%d messages: %x after %x", n, turns, before)
			}
			if slices.Contains(before, turns[n-1]) || slices.Equal(turns, turnsOf(t, ChatCompletions, body, 8)) {
				t.Fatal("two prompts have one hash")
			}
			before = turns
		}
	}
}

func TestTurnsOfACutBodyAreThoseOfTheWhole(t *testing.T) {
	body := `{"model":"m","messages":[{"role":"user","content":"one"},{"role":"assistant","content":"two"},{"role":"user","content":"three"}]}`
	whole := turnsOf(t, ChatCompletions, body, 0)
	most := 0
	for cut := range len(body) {
		turns := turnsOf(t, ChatCompletions, body[:cut], 0)
		if len(turns) > 3 || !slices.Equal(turns, whole[:len(turns)]) && len(turns) > 0 && !slices.Equal(turns[:len(turns)-1], whole[:len(turns)-1]) {
			t.Fatalf("cut at %d: %x, whole %x", cut, turns, whole)
		}
		most = max(most, len(turns))
	}
	if most < 2 {
		t.Error("no turns found in a cut body")
	}
	if n := len(turnsOf(t, ChatCompletions, `{"model":"m"}`, 0)); n != 0 {
		t.Errorf("%d turns of no prompt", n)
	}
	if n := len(turnsOf(t, Completions, `{"prompt":"text"}`, 0)); n != 1 {
		t.Errorf("%d turns of a prompt", n)
	}
}
