package prompt

import "bytes"

// Endpoint says which API a request speaks, and so where its prompt is.
type Endpoint uint8

// The endpoints whose prompts are understood. Other yields the model and the
// scalars but no text.
const (
	Other Endpoint = iota
	ChatCompletions
	Completions
	Embeddings
	Responses
	Messages
	Rerank
	Score
	Tokenize // and all else that only counts tokens, or returns them
)

var endpointNames = [...]string{
	"other", "chat_completions", "completions", "embeddings", "responses",
	"messages", "rerank", "score", "tokenize",
}

// String returns a short name fit for a metric label.
func (e Endpoint) String() string {
	if int(e) < len(endpointNames) {
		return endpointNames[e]
	}
	return endpointNames[Other]
}

// EndpointOf determines the endpoint by the last segments of path. Any prefix, a
// query string and trailing slashes are ignored; case counts.
func EndpointOf(path []byte) Endpoint {
	if i := bytes.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	if bytes.IndexByte(path, '%') >= 0 {
		var decoded [128]byte // the end of a longer path will do
		path = unescapePath(decoded[:0], path[max(0, len(path)-len(decoded)):])
	}
	head, last := lastSegment(path)
	switch string(last) {
	case "completions":
		if _, s := lastSegment(head); string(s) == "chat" {
			return ChatCompletions
		}
		return Completions
	case "embeddings":
		return Embeddings
	case "responses":
		return Responses
	case "messages":
		return Messages
	case "rerank":
		return Rerank
	case "score":
		return Score
	case "tokenize", "detokenize", "count_tokens", "input_tokens", "render", "apply-template":
		return Tokenize
	}
	return Other
}

// unescapePath appends path to dst with its escapes decoded, as servers do.
func unescapePath(dst, path []byte) []byte {
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' && i+2 < len(path) {
			if n, ok := hex2(path[i+1], path[i+2]); ok {
				c, i = n, i+2
			}
		}
		dst = append(dst, c)
	}
	return dst
}

// hex2 returns the byte of two hexadecimal digits.
func hex2(high, low byte) (byte, bool) {
	r, ok := hex4([]byte{'\\', 'u', '0', '0', high, low})
	return byte(r), ok
}

// lastSegment splits path before its last segment, whatever slashes trail it.
func lastSegment(path []byte) (head, segment []byte) {
	for len(path) > 0 && path[len(path)-1] == '/' {
		path = path[:len(path)-1]
	}
	i := bytes.LastIndexByte(path, '/') + 1
	return path[:i], path[i:]
}
