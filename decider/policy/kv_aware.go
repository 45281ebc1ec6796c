package policy

import "pointsman/decider"

// KVAware is LeastWork on the exact tokens of prompts, which the engines
// themselves make of the text, and on what the engines say of the blocks in
// their KV caches. Choose it where engines publish KV-cache events and prompts
// are long: it knows what was evicted, and of requests from elsewhere. A replica
// without events is predicted, as LeastWork does.
type KVAware struct {
	LeastWork
	options decider.TokenOptions
}

// NewKVAware returns a KVAware, or the error of o.Validate.
func NewKVAware(o decider.TokenOptions) (*KVAware, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &KVAware{options: o}, nil
}

// Tokens implements TokenUser.
func (k *KVAware) Tokens() *decider.TokenOptions { return &k.options }

var (
	_ decider.Policy    = (*KVAware)(nil)
	_ decider.Termed    = (*KVAware)(nil)
	_ decider.TokenUser = (*KVAware)(nil)
)
