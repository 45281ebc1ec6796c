package policy

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
)

// formula computes a number from the values of the quantities that it names,
// ordered as in the table quantities. False is 0 and true is 1.
type formula func(values []float64) float64

// parseFormula compiles text and returns which quantities it names. The
// expression library parses it and checks types. The closures made here run in
// the place of its virtual machine, which allocates for every number.
func parseFormula(text string) (f formula, used []int, err error) {
	options := []expr.Option{expr.AsFloat64(), expr.Optimize(false)}
	names := map[string]any{}
	for _, q := range quantities {
		names[q.name] = q.zero()
	}
	for name := range functions {
		options = append(options, expr.Function(name, notRun, new(func(float64) float64)))
	}
	program, err := expr.Compile(text, append(options, expr.Env(names))...)
	if err != nil {
		return nil, nil, formulaError(text, err)
	}
	c := formulaCompiler{used: make([]bool, len(quantities))}
	f = c.node(program.Node())
	if c.err != nil {
		return nil, nil, formulaError(text, c.err)
	}
	for k, u := range c.used {
		if u {
			used = append(used, k)
		}
	}
	return f, used, nil
}

// functions take one number; min and max, which take any, are not among them.
var functions = map[string]func(float64) float64{"exp": math.Exp, "log": math.Log, "sqrt": math.Sqrt}

// rounding are the functions of one number that the library has itself.
var rounding = map[string]func(float64) float64{"abs": math.Abs, "ceil": math.Ceil, "floor": math.Floor, "round": math.Round}

func notRun(...any) (any, error) { return nil, errors.New("not run") }

// formulaError puts an error of the library into one line that begins with the
// position in the formula. It adds the valid names if a name is unknown.
func formulaError(formula string, err error) error {
	var at *file.Error
	if !errors.As(err, &at) {
		return err
	}
	text := at.Message
	if strings.HasPrefix(text, "unknown name ") {
		names := make([]string, len(quantities))
		for i, q := range quantities {
			names[i] = q.name
		}
		text += "; want one of " + strings.Join(names, ", ")
	}
	before := []rune(formula)
	before = before[:min(at.From, len(before))]
	line, column := 1, 1
	for _, c := range before {
		if column++; c == '\n' {
			line, column = line+1, 1
		}
	}
	return fmt.Errorf("line %d, column %d of the formula: %s", line, column, text)
}

// formulaCompiler turns the checked syntax tree into closures. It keeps the first
// error: a node that the library accepts but that is not arithmetic.
type formulaCompiler struct {
	used []bool // by quantity
	err  error
}

func (c *formulaCompiler) refuse(n ast.Node, what string) formula {
	if c.err == nil {
		c.err = &file.Error{Location: n.Location(), Message: what + " is not allowed in a formula"}
	}
	return func([]float64) float64 { return 0 }
}

func (c *formulaCompiler) node(n ast.Node) formula {
	switch n := n.(type) {
	case *ast.IntegerNode:
		return constant(float64(n.Value))
	case *ast.FloatNode:
		return constant(n.Value)
	case *ast.BoolNode:
		return constant(truth(n.Value))
	case *ast.IdentifierNode:
		for k, q := range quantities {
			if q.name == n.Value {
				c.used[k] = true
				return func(v []float64) float64 { return v[k] }
			}
		}
		return c.refuse(n, n.Value)
	case *ast.UnaryNode:
		x := c.node(n.Node)
		switch n.Operator {
		case "-":
			return func(v []float64) float64 { return -x(v) }
		case "+":
			return x
		case "!", "not":
			return func(v []float64) float64 { return truth(x(v) == 0) }
		}
		return c.refuse(n, n.Operator)
	case *ast.BinaryNode:
		return c.binary(n)
	case *ast.ConditionalNode:
		cond, yes, no := c.node(n.Cond), c.node(n.Exp1), c.node(n.Exp2)
		return func(v []float64) float64 {
			if cond(v) != 0 {
				return yes(v)
			}
			return no(v)
		}
	case *ast.BuiltinNode:
		return c.call(n, n.Name, n.Arguments)
	case *ast.CallNode:
		if name, ok := n.Callee.(*ast.IdentifierNode); ok {
			return c.call(n, name.Value, n.Arguments)
		}
	}
	return c.refuse(n, n.String())
}

func (c *formulaCompiler) binary(n *ast.BinaryNode) formula {
	a, b := c.node(n.Left), c.node(n.Right)
	switch n.Operator {
	case "+":
		return func(v []float64) float64 { return a(v) + b(v) }
	case "-":
		return func(v []float64) float64 { return a(v) - b(v) }
	case "*":
		return func(v []float64) float64 { return a(v) * b(v) }
	case "/":
		return func(v []float64) float64 { return a(v) / b(v) }
	case "%":
		return func(v []float64) float64 { return math.Mod(a(v), b(v)) }
	case "^", "**":
		return func(v []float64) float64 { return math.Pow(a(v), b(v)) }
	case "<":
		return func(v []float64) float64 { return truth(a(v) < b(v)) }
	case "<=":
		return func(v []float64) float64 { return truth(a(v) <= b(v)) }
	case ">":
		return func(v []float64) float64 { return truth(a(v) > b(v)) }
	case ">=":
		return func(v []float64) float64 { return truth(a(v) >= b(v)) }
	case "==":
		return func(v []float64) float64 { return truth(a(v) == b(v)) }
	case "!=":
		return func(v []float64) float64 { return truth(a(v) != b(v)) }
	case "and", "&&":
		return func(v []float64) float64 { return truth(a(v) != 0 && b(v) != 0) }
	case "or", "||":
		return func(v []float64) float64 { return truth(a(v) != 0 || b(v) != 0) }
	}
	return c.refuse(n, n.Operator)
}

func (c *formulaCompiler) call(n ast.Node, name string, arguments []ast.Node) formula {
	args := make([]formula, len(arguments))
	for i, a := range arguments {
		args[i] = c.node(a)
	}
	f := functions[name]
	if f == nil {
		f = rounding[name]
	}
	switch {
	case f != nil && len(args) == 1:
		x := args[0]
		return func(v []float64) float64 { return f(x(v)) }
	case name == "min" && len(args) > 0:
		return fold(args, math.Min)
	case name == "max" && len(args) > 0:
		return fold(args, math.Max)
	}
	return c.refuse(n, name)
}

func fold(args []formula, f func(a, b float64) float64) formula {
	return func(v []float64) float64 {
		x := args[0](v)
		for _, a := range args[1:] {
			x = f(x, a(v))
		}
		return x
	}
}

func constant(x float64) formula { return func([]float64) float64 { return x } }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
