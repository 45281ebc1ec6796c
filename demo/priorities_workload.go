package demo

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bytedance/sonic"
)

// newPriorities makes n streamed requests: nine in ten are short ones of a
// chat, the others batch prompts of some 10,000 to 20,000 tokens.
func newPriorities(seed uint64, n int) ([]call, error) {
	chance := rand.New(rand.NewPCG(seed, 1))
	calls := make([]call, n)
	at := time.Duration(0)
	for i := range calls {
		c := call{
			at: at, path: "/v1/chat/completions", session: fmt.Sprintf("demo-%d", i),
			output: 8 + chance.IntN(56), stream: true, band: chatBand,
		}
		length := 40 + chance.IntN(300)
		if chance.IntN(10) == 0 {
			c.band, length = batchBand, 8000+chance.IntN(8000)
		}
		var err error
		if c.body, err = sonic.ConfigStd.Marshal(map[string]any{
			"model": "demo", "max_tokens": c.output, "ignore_eos": true, "stream": true,
			"messages": []message{{"user", words(chance, length)}},
		}); err != nil {
			return nil, err
		}
		calls[i] = c
		at += time.Duration(chance.ExpFloat64() * float64(time.Second))
	}
	return calls, nil
}
