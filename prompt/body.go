package prompt

// DefaultLimit is how many bytes of a body Scan looks at when it is given no
// limit.
const DefaultLimit = 1 << 20

// Body is what one scan saw.
type Body struct {
	Model, User, CacheSalt []byte
	MaxTokens              int
	N                      int
	Stream                 bool
	Priority               int
	HasPriority            bool
	TextBytes              int
	TokenIDs               int
	MediaTokens            int
	MessageCount           int
	Complete               bool
	Scanned                int
}

// Scan reads data.
func (b *Body) Scan(data []byte, e Endpoint, limit int) { *b = Body{MaxTokens: -1, N: 1} }

// ScanTail reads the end of a body.
func (b *Body) ScanTail(tail []byte) {}

// Blocks appends the chained hashes of the prompt's full blocks.
func (b *Body) Blocks(dst []uint64, seed uint64, blockBytes int) []uint64 { return dst }

// Seed returns the first link of a chain.
func Seed(model, lora, salt []byte) uint64 { return 0 }
