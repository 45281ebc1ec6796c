package tiny

import (
	"regexp"
	"sort"
	"strings"
)

// Special tokens, which come first in the vocabulary.
const (
	Begin   = "<s>"
	end     = "</s>"
	turn    = "<|im_start|>"
	turnEnd = "<|im_end|>"
)

var specials = []string{"<unk>", Begin, end, turn, turnEnd}

// Template is the chat template of the models. It shows tools and their calls, reasoning,
// how hard the model is to think, and the argument "style" of clients that send template
// arguments.
const Template = "{% if tools %}<|im_start|>tools\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}" +
	"{% if style %}<|im_start|>style\n{{ style }}<|im_end|>\n{% endif %}" +
	"{% if reasoning_effort %}<|im_start|>effort\n{{ reasoning_effort }}<|im_end|>\n{% endif %}" +
	"{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['reasoning'] %}{{ m['reasoning'] }}\n{% endif %}" +
	"{{ m['content'] if m['content'] is string else '' }}" +
	"{% if m['tool_calls'] %}{% for c in m['tool_calls'] %}\n{{ c['function']['name'] }} {{ c['function']['arguments'] | tojson }}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}" +
	"{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}at once: {% endif %}{% endif %}"

// Vocabulary is a byte-level BPE, as GPT-2's: tokens by their number, and the pairs
// that are merged, in their order.
type Vocabulary struct {
	Tokens []string
	Merges [][2]string
}

// id returns a token's number.
func (v *Vocabulary) id(token string) int {
	for i, t := range v.Tokens {
		if t == token {
			return i
		}
	}
	return 0
}

// words splits a text about as GPT-2 does before it merges.
var words = regexp.MustCompile(` ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+`)

// Learn makes a vocabulary with the given number of merges from a text.
func Learn(text string, merges int) *Vocabulary {
	v := &Vocabulary{Tokens: append([]string{}, specials...)}
	letters := alphabet()
	v.Tokens = append(v.Tokens, letters[:]...)
	count := map[string]int{}
	for _, w := range words.FindAllString(text, -1) {
		count[w]++
	}
	var parts [][]string
	var times []int
	for _, w := range sorted(count) {
		var p []string
		for _, b := range []byte(w) {
			p = append(p, letters[b])
		}
		parts, times = append(parts, p), append(times, count[w])
	}
	for range merges {
		pairs := map[[2]string]int{}
		for i, p := range parts {
			for k := 1; k < len(p); k++ {
				pairs[[2]string{p[k-1], p[k]}] += times[i]
			}
		}
		best, most := [2]string{}, 1
		for p, n := range pairs {
			if n > most || n == most && (p[0] < best[0] || p[0] == best[0] && p[1] < best[1]) {
				best, most = p, n
			}
		}
		if most < 2 {
			break
		}
		v.Merges = append(v.Merges, best)
		v.Tokens = append(v.Tokens, best[0]+best[1])
		for i, p := range parts {
			parts[i] = merge(p, best)
		}
	}
	return v
}

// merge joins each occurrence of a pair.
func merge(p []string, pair [2]string) []string {
	out := p[:0]
	for i := 0; i < len(p); i++ {
		if i+1 < len(p) && p[i] == pair[0] && p[i+1] == pair[1] {
			out = append(out, p[i]+p[i+1])
			i++
			continue
		}
		out = append(out, p[i])
	}
	return out
}

func sorted(m map[string]int) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// alphabet is how byte-level BPE writes each byte: as itself where it prints, else
// as one of the letters from 256 on.
func alphabet() (letters [256]string) {
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE) {
			r, next = next, next+1
		}
		letters[b] = string(r)
	}
	return letters
}

// padded is the number of rows of the embedding: engines like multiples of 64.
func (v *Vocabulary) padded() int { return (len(v.Tokens) + 63) / 64 * 64 }

// joined are the merges as most formats write them.
func (v *Vocabulary) joined() (list []string) {
	for _, m := range v.Merges {
		list = append(list, strings.Join(m[:], " "))
	}
	return list
}
