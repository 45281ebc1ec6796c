package policy

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"pointsman/decider"
	"pointsman/session"
)

// Expression takes the candidate for which a formula in the configuration is
// lowest, ties at random. Choose it for a rule of your own that needs no Go.
type Expression struct {
	f      formula
	used   []int // quantities that the formula names
	terms  []string
	values []float64 // by quantity
	table  *session.Table
	prefix bool
	home   int  // the place of session_rank in quantities, -1 = not used
	mean   bool // the formula names mean_in_flight
	at     evaluation
}

// ExpressionOptions are the options of Expression.
type ExpressionOptions struct {
	// Formula is the cost of a replica, computed from the table quantities.
	Formula string `yaml:"formula" help:"the cost of a replica, at most 4096 bytes"`
}

// maxFormula is the maximum length of a formula in bytes.
const maxFormula = 4096

// Validate returns an error that names the option at fault and the place in the
// formula.
func (o ExpressionOptions) Validate() error {
	_, _, err := o.parse()
	return err
}

func (o ExpressionOptions) parse() (f formula, used []int, err error) {
	switch {
	case o.Formula == "":
		return nil, nil, errors.New("formula: want a formula such as in_flight / weight; the lowest value wins")
	case len(o.Formula) > maxFormula:
		return nil, nil, fmt.Errorf("formula: want at most %d bytes", maxFormula)
	}
	if f, used, err = parseFormula(o.Formula); err != nil {
		return nil, nil, fmt.Errorf("formula: %w", err)
	}
	return f, used, nil
}

// NewExpression returns an Expression, or the error of o.Validate.
func NewExpression(o ExpressionOptions) (*Expression, error) {
	f, used, err := o.parse()
	if err != nil {
		return nil, err
	}
	p := &Expression{f: f, used: used, values: make([]float64, len(quantities)), table: session.NewTable(nil), home: -1}
	for _, k := range used {
		name := quantities[k].name
		p.terms = append(p.terms, name)
		p.prefix = p.prefix || slices.Contains([]string{"cached", "uncached", "best_cached"}, name)
		if name == "session_rank" {
			p.home = k
		}
		p.mean = p.mean || name == "mean_in_flight"
	}
	p.terms = append(p.terms, "cost")
	return p, nil
}

// Terms implements Termed: the quantities that the formula names, and its value.
func (p *Expression) Terms() []string { return p.terms }

// UsesPrefix implements PrefixUser.
func (p *Expression) UsesPrefix() bool { return p.prefix }

// Members implements MemberObserver.
func (p *Expression) Members(replicas []*decider.Replica) { p.table = sessionTable(replicas) }

// Rank implements Policy. A value that is not a number, such as 0/0, comes last.
func (p *Expression) Rank(r *decider.Request, v *decider.View, dst []int) []int {
	e := &p.at
	e.request, e.view, e.home = r, v, e.home[:0]
	if p.home >= 0 && r.HasSession {
		e.home, _ = p.table.Rank(r.Session, v.Candidates, 3, e.home)
	}
	if p.mean {
		e.mean = 0
		for _, i := range v.Candidates {
			e.mean += float64(v.Replicas[i].InFlight()) / float64(len(v.Candidates))
		}
	}
	dst = v.Least(dst, 3, func(c int, replica *decider.Replica) float64 {
		e.index, e.replica = v.Candidates[c], replica
		for n, k := range p.used {
			x := quantities[k].get(e)
			p.values[k] = x
			v.SetTerm(c, n, x)
		}
		cost := p.f(p.values)
		v.SetTerm(c, len(p.used), cost)
		if math.IsNaN(cost) {
			return math.Inf(1)
		}
		return cost
	})
	e.request, e.view, e.replica = nil, nil, nil
	return dst
}

var (
	_ decider.Policy         = (*Expression)(nil)
	_ decider.Termed         = (*Expression)(nil)
	_ decider.PrefixUser     = (*Expression)(nil)
	_ decider.MemberObserver = (*Expression)(nil)
)
