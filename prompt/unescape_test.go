package prompt

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestHasLong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := []byte(rapid.StringOfN(rapid.SampledFrom([]rune(`\\unu"]tvé`)), 0, 150, -1).Draw(t, "p"))
		if got, want := hasLong(p), bytes.Contains(p, []byte(`\u`)); got != want {
			t.Fatalf("%v for %q", got, p)
		}
	})
}

func TestUnescape(t *testing.T) {
	for _, c := range []struct{ in, plain, short string }{
		{`a"`, "a", "a"},
		{`\n\"\\\/\b\f\r\t"`, "\n\"\\/\b\f\r\t", `\n\"\\\/\b\f\r\t`},
		{`\u000a\u0022\u005C\u0041\u00e9"`, "\n\"\\Aé", `\n\"\\Aé`},
		{`\u0001\u0000"`, "\x01\x00", "\x01\x00"},
		{`\ud83d\ude00"`, "😀", "😀"},
		{`\ud83d\u0041\ude00\ud83dx"`, "\ufffdA\ufffd\ufffdx", "\ufffdA\ufffd\ufffdx"},
		{`\x\uzzzz\u12"`, "xuzzzzu12", `\xuzzzzu12`},
		{`abcdefghijklmnopqrstuvwxyz\u0021"`, "abcdefghijklmnopqrstuvwxyz!", "abcdefghijklmnopqrstuvwxyz!"},
	} {
		for short, want := range map[bool]string{false: c.plain, true: c.short} {
			got, n := unescape([]byte("."), []byte(c.in+`rest"`), short)
			if string(got) != "."+want || n != len(c.in) {
				t.Errorf("%s short %v: %q, %d", c.in, short, got, n)
			}
		}
	}
}

// TestUnescapeCut cuts a string everywhere: what comes out is whole characters.
func TestUnescapeCut(t *testing.T) {
	in, want := `aé€\n\ud83d\ude00\u0041😀`, "aé€\n😀A😀"
	for cut := range in {
		got, n := unescape(nil, []byte(in[:cut]), false)
		if n != -1 || !strings.HasPrefix(want, string(got)) || strings.ToValidUTF8(string(got), "") != string(got) {
			t.Errorf("%q: %q, %d", in[:cut], got, n)
		}
	}
	for p, want := range map[string]string{"": "", "a": "a", `a\`: "a", `a\\`: `a\\`, "é"[:1]: "", "€"[:2]: "", "a😀"[:4]: "a", "\x80\x80\x80\x80": "\x80\x80\x80\x80"} {
		if got := string(trimCut([]byte(p))); got != want {
			t.Errorf("%q: %q", p, got)
		}
	}
}
