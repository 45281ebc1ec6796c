package intake

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"pointsman/decider"
	"pointsman/session"
)

// table maps models to pools. It is immutable.
type table struct {
	pools       []*destination
	models      map[string]*route
	fallback    *destination
	session     session.Headers
	fields      []SessionField
	modelHeader session.Headers
	budgetKeys  session.Headers
	scanLimit   int
	oneModel    bool
	priority    bool
	shadow      bool
	listModels  bool
	names       []string // of all models, in the configuration's order
}

// destination is a pool, and how its requests are classified.
type destination struct {
	pool    *decider.Pool
	classes *classifier // nil = all are alike
}

// route is where the requests for one model go.
type route struct {
	name     string // the model, as configured: request records share this string
	lora     string // the same, when the model is a LoRA adapter
	branches []branch
	total    uint64
}

type branch struct {
	to     *destination
	weight uint64
}

// newTable builds the routes of c to the pools of d.
func newTable(c Config, d *decider.Decider) *table {
	t := &table{
		models:      map[string]*route{},
		session:     c.Session,
		fields:      c.SessionFields,
		modelHeader: c.ModelHeader,
		budgetKeys:  c.BudgetKeys,
		scanLimit:   c.ScanLimit,
		oneModel:    c.OneModel,
		priority:    c.BodyPriority,
		shadow:      c.Shadow,
		listModels:  c.ListModels,
	}
	for _, pc := range c.Pools {
		to := &destination{pool: d.Pool(pc.Name)}
		if classes, ok := c.Classes[pc.Name]; ok && pc.Admission != nil {
			to.classes = newClassifier(classes)
		}
		t.pools = append(t.pools, to)
		for _, m := range pc.Models {
			t.add(to.route(m, ""))
		}
		for _, m := range pc.LoRA {
			t.add(to.route(m, m))
		}
	}
	for _, model := range slices.Sorted(maps.Keys(c.Routes)) {
		splits := c.Routes[model]
		r := &route{name: model}
		for _, s := range splits {
			if to := t.named([]byte(s.Pool)); to != nil && s.Weight > 0 {
				r.branches = append(r.branches, branch{to, uint64(s.Weight)})
				r.total += uint64(s.Weight)
			}
		}
		if r.total > 0 {
			t.add(r)
		}
	}
	t.fallback = t.named([]byte(c.DefaultPool))
	return t
}

// add adds a route, which takes the place of an earlier one of its name.
func (t *table) add(r *route) {
	if t.models[r.name] == nil {
		t.names = append(t.names, r.name)
	}
	t.models[r.name] = r
}

// route is the route of a model to d alone.
func (d *destination) route(name, lora string) *route {
	return &route{name: name, lora: lora, branches: []branch{{d, 1}}, total: 1}
}

// pick chooses a branch by key, the same one for equal keys.
func (r *route) pick(key uint64) *destination {
	n := key % r.total
	for _, b := range r.branches {
		if n < b.weight {
			return b.to
		}
		n -= b.weight
	}
	return nil
}

// named is the destination of that name, or nil.
func (t *table) named(name []byte) *destination {
	for _, d := range t.pools {
		if d.pool.Name() == string(name) {
			return d
		}
	}
	return nil
}

// find is the destination of r, whose model it sets, or nil when no pool
// serves the model: then r.Decision refuses the request.
func (i *Intake) find(t *table, r *Request, in *Input) *destination {
	model := r.body.Model
	if model == nil {
		model = in.Model
	}
	if model == nil && r.Cut {
		i.modelUnseen.Add(1)
		model, _ = t.modelHeader.Find(in.Headers)
	}
	configured, listed := t.models[string(model)], (*i.adapters.Load())[string(model)]
	if to := t.named(in.Pool); to != nil {
		// The proxy chose the pool: the model serves for records alone.
		r.Fixed = true
		if configured != nil {
			r.Model, r.LoRA = configured.name, configured.lora
		} else if listed != nil && listed.branches[0].to.pool == to.pool {
			r.Model, r.LoRA = listed.name, listed.lora
		}
		return to
	}
	if configured == nil {
		configured = listed
	}
	if configured != nil {
		r.Model, r.LoRA = configured.name, configured.lora
		return configured.pick(r.Key())
	}
	if to := t.other(len(model) == 0); to != nil {
		return to
	}
	i.modelUnknown.Add(1)
	if t.shadow {
		r.Decision = decider.Decision{Why: "unknown_model", Unsteered: true}
		return nil
	}
	r.Decision = decider.Decision{Status: http.StatusNotFound, Reason: unknownModel(model), Why: "unknown_model"}
	return nil
}

// other is the destination of models without a route, and of requests whose model was not
// seen, or nil.
func (t *table) other(unseen bool) *destination {
	switch {
	case t.fallback != nil:
		return t.fallback
	case unseen && len(t.pools) > 0:
		// No model, or none that was seen: an engine may serve it, or report the error.
		// Without the agent, the proxy uses the first pool too.
		return t.pools[0]
	case len(t.pools) == 1 && len(t.models) == 0:
		return t.pools[0] // the only pool names no models: it takes them all
	}
	return nil
}

// unknownModel is the message of a 404. The proxy puts it into a JSON string, so it
// contains nothing that JSON would have to escape.
func unknownModel(model []byte) string {
	const most = 128
	name := string(model)
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "..."
	}
	clean := func(c rune) rune {
		if c < ' ' || c == '"' || c == '\\' || c == 0x7f || c == utf8.RuneError {
			return '?'
		}
		return c
	}
	return fmt.Sprintf("The model '%s' does not exist.", strings.Map(clean, name))
}
