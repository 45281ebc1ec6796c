package fakevllm

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestTokensKeepText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text") + string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		tokens := appendTokens(nil, text)
		var back []byte
		for _, id := range tokens {
			if id < firstPiece || id >= tokenLimit {
				t.Fatalf("token %d out of range", id)
			}
			back = appendText(back, id)
		}
		if string(back) != text {
			t.Fatalf("%q came back as %q", text, back)
		}
	})
}

func TestTokensOfALongerText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, more := rapid.String().Draw(t, "text"), rapid.String().Draw(t, "more")
		short, long := appendTokens(nil, text), appendTokens(nil, text+more)
		if n := len(short) - 1; n > 0 && !slices.Equal(short[:n], long[:n]) {
			t.Fatalf("%v does not begin like %v", long, short)
		}
	})
}

func TestTokenSize(t *testing.T) {
	text := strings.Repeat("The points are set. ", 1000)
	if got := len(appendTokens(nil, text)); got != len(text)/4 {
		t.Errorf("%d tokens for %d bytes", got, len(text))
	}
}

func TestDetokenizeAnyID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Uint32().Draw(t, "id")
		if got := appendText(nil, id); len(got) > 12 {
			t.Fatalf("token %d has the text %q", id, got)
		}
	})
}

func TestBlockKeys(t *testing.T) {
	tokens := appendTokens(nil, strings.Repeat("abcdefgh", 100))
	keys := extendKeys(nil, tokens, 16, "")
	if len(keys) != len(tokens)/16 {
		t.Fatalf("%d keys for %d tokens", len(keys), len(tokens))
	}
	for n := range keys {
		if got := extendKeys(keys[:n:n], tokens, 16, ""); !slices.Equal(got, keys) {
			t.Fatalf("keys extended from %d differ", n)
		}
	}
	other := extendKeys(nil, tokens, 16, "tenant")
	changed := slices.Clone(tokens)
	changed[40]++
	later := extendKeys(nil, changed, 16, "")
	for i, k := range keys {
		if k == other[i] {
			t.Errorf("block %d is shared between salts", i)
		}
		if (k == later[i]) != (i < 2) {
			t.Errorf("block %d of a prompt that differs in block 2: equal %v", i, k == later[i])
		}
	}
}
