package prompt

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Claude Code's billing line is another one in each request. Prompts that differ in it
// alone have the same blocks, for engines drop it.
func TestBillingLine(t *testing.T) {
	rest := strings.Repeat("the rest of the prompt ", 60)
	for _, c := range []struct {
		e      Endpoint
		body   string
		differ bool
	}{
		{Messages, `{"system":[{"type":"text","text":"x-anthropic-billing-header: cch=%s;"},{"type":"text","text":"` + rest + `"}],"messages":[]}`, false},
		{Messages, `{"system":"x-anthropic-billing-header: cch=%s;\n` + rest + `","messages":[]}`, false},
		{Messages, `{"system":"x-anthropic-billing-header: \u0063ch=%s;\u000a` + rest + `","messages":[]}`, false},
		{ChatCompletions, `{"messages":[{"role":"system","content":"x-anthropic-billing-header: cch=%s;\n` + rest + `"}]}`, false},
		{ChatCompletions, `{"messages":[{"content":[{"type":"text","text":"x-anthropic-billing-header: cch=%s;"},{"type":"text","text":"` + rest + `"}],"role":"system"}]}`, false},
		{Messages, `{"system":[{"type":"text","text":"x-anthropic-billing-header: cch=%s`, false}, // cut
		{Messages, `{"system":[{"type":"text","text":"version %s"},{"type":"text","text":"` + rest + `"}]}`, true},
		{Messages, `{"messages":[{"role":"user","content":"x-anthropic-billing-header: cch=%s;\n` + rest + `"}]}`, true},
	} {
		var of [2][]uint64
		var turns [2][]uint64
		var text [2]int
		for i, cch := range []string{"abcde", "01234"} {
			var b Body
			b.Scan(fmt.Appendf(nil, c.body, cch), c.e, 0)
			of[i], turns[i], text[i] = b.Blocks(nil, 1, 64), b.Turns(nil, 1), b.TextBytes
		}
		if equal := slices.Equal(of[0], of[1]) && slices.Equal(turns[0], turns[1]); equal == c.differ {
			t.Errorf("%.80s: equal %v", c.body, equal)
		}
		if !c.differ && len(of[0]) > 0 && len(of[0]) < len(rest)/64 || text[0] > len(rest)+60 || !c.differ && text[0] > len(rest)+len("system") {
			t.Errorf("%.80s: %d blocks, %d bytes", c.body, len(of[0]), text[0])
		}
	}
}
