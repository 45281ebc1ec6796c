package decider

// KVAware is LeastWork on the exact tokens of prompts, which the engines
// themselves make of the text, and on what the engines say of the blocks in
// their KV caches. Choose it where engines publish KV-cache events and prompts
// are long: it knows what was evicted, and of requests from elsewhere. A replica
// without events is predicted, as LeastWork does.
type KVAware struct {
	LeastWork
	options TokenOptions
}

// NewKVAware returns a KVAware, or an error that names the option at fault.
func NewKVAware(o TokenOptions) (*KVAware, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return &KVAware{options: o}, nil
}

// Tokens implements TokenUser.
func (k *KVAware) Tokens() *TokenOptions { return &k.options }

var (
	_ Policy    = (*KVAware)(nil)
	_ Termed    = (*KVAware)(nil)
	_ TokenUser = (*KVAware)(nil)
)
