package policy

import "pointsman/decider"

// KVAware is LeastWork on exact tokens: the engines tokenize the prompts and
// report which blocks their KV caches hold. Choose it where engines publish
// KV-cache events and prompts are long: it knows about evictions and about
// requests that do not come through the proxy. The cache of a replica without
// events is predicted, as LeastWork does.
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
