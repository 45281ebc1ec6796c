package intake

import (
	"slices"
	"time"

	"github.com/bytedance/sonic"
)

// maxModels bounds the list of models.
const maxModels = 4096

// listedModel is a model in OpenAI's form.
type listedModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// Models is the answer to GET /v1/models: the models of all pools. It is nil if the
// configuration does not say so, or if not all models are known: the one pool that
// names no models has its engines' own, which list them. It must not be changed.
func (i *Intake) Models() []byte {
	if list := i.models.Load(); list != nil {
		return *list
	}
	return nil
}

// listModels makes the list of models anew: those of the configuration in its order,
// then the adapters that engines have.
func (i *Intake) listModels(t *table, listed adapters) {
	if !t.listModels || len(t.names) == 0 {
		i.models.Store(nil)
		return
	}
	more := make([]string, 0, len(listed))
	for name := range listed {
		more = append(more, name)
	}
	slices.Sort(more)
	names := slices.Concat(t.names, more)
	list := struct {
		Object string        `json:"object"`
		Data   []listedModel `json:"data"`
	}{Object: "list"}
	for _, name := range names[:min(len(names), maxModels)] {
		list.Data = append(list.Data, listedModel{ID: name, Object: "model", Created: i.started, OwnedBy: "pointsman"})
	}
	text, err := sonic.ConfigStd.Marshal(list) // safe within HTML too
	if err != nil {
		i.models.Store(nil)
		return
	}
	i.models.Store(&text)
}

// unixNow is when the models of the list were made, as far as anybody knows.
func unixNow() int64 { return time.Now().Unix() }
