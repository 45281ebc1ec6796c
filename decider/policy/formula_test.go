package policy

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pointsman/decider/decidertest"
)

func TestFormulas(t *testing.T) {
	// Values by name, for all that the formulas below name.
	values := make([]float64, len(quantities))
	for k, q := range quantities {
		values[k] = map[string]float64{"in_flight": 6, "weight": 4, "same_zone": 1, "latency": math.NaN()}[q.name]
	}
	for text, want := range map[string]float64{
		"0":                       0,
		"1.5e3":                   1500,
		"in_flight / weight":      1.5,
		"1/2 + 7 % 4":             3.5,
		"-in_flight ** 2":         -36,
		"2 ^ 3 - +1":              7,
		"(in_flight + 2) * 3":     24,
		"in_flight > 5 ? 10 : 20": 10,
		"in_flight >= 7 || same_zone and not same_node ? 1 : 2": 1,
		"!same_zone or false ? 1 : 2":                           2,
		"true && in_flight == 6 ? 1 : 2":                        1,
		"in_flight != 6 ? 1 : 2":                                2,
		"in_flight < 6 ? 1 : in_flight <= 6 ? 2 : 3":            2,
		"min(in_flight, weight, 5) + max(1, 2)":                 6,
		"abs(-2) + ceil(1.2) + floor(1.8) + round(1.5)":         7,
		"sqrt(16) + log(exp(2))":                                6,
		"same_zone == same_node ? 1 : 0":                        0,
	} {
		f, used, err := parseFormula(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f(values); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s = %v, want %v", text, got, want)
		}
		for _, k := range used {
			if !strings.Contains(text, quantities[k].name) {
				t.Errorf("%s is reported to use %s", text, quantities[k].name)
			}
		}
	}
}

func TestFormulasAreRefusedWithTheirPlace(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "formula: want a formula such as in_flight / weight; the lowest value wins",
		strings.Repeat("1+", 2047) + "100": "formula: want at most 4096 bytes",
		"in_flight + in_fligth":            "formula: line 1, column 13 of the formula: unknown name in_fligth; want one of in_flight, waiting, ",
		"1 +\n same_zone * 2":              "formula: line 2, column 12 of the formula: invalid operation: * (mismatched types bool and int)",
		"1 +":                              "formula: line 1, column 3 of the formula: unexpected token EOF",
		"same_zone":                        "formula: expected float64, but got bool",
		"1 + (in_flight ?? 2)":             "formula: line 1, column 16 of the formula: ?? is not allowed in a formula",
		"let x = 2; x":                     "formula: line 1, column 5 of the formula: let x = 2; x is not allowed in a formula",
		"len([1, 2])":                      "formula: line 1, column 5 of the formula: ",
		"in_flight in [1] ? 1 : 2":         "formula: line 1, column 14 of the formula: [1] is not allowed in a formula",
		"min([1, 2])":                      "formula: line 1, column 5 of the formula: [1, 2] is not allowed in a formula",
		"log()":                            "formula: line 1, column 1 of the formula: not enough arguments to call log",
		"now().Unix()":                     "formula: ",
		"sum(1..1000000000)":               "formula: ",
	} {
		_, err := NewExpression(ExpressionOptions{text})
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: %v\nwant %s", text, err, want)
		}
	}
}

// Whatever is written as a formula is refused or computes; nothing panics, and
// the policy still orders the candidates.
func FuzzFormula(f *testing.F) {
	for _, s := range []string{"in_flight / weight", "same_zone ? 0 : 1/0", "min(cached, 2) ** -1", "1..2", "[1][0]", "'a'[0:1]", "{a: 1}.a", "-(-1)", "0/0", "x", "let a=1;a", "map(1..3, #)[0]", "nil", "if true {1} else {2}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		policy, err := NewExpression(ExpressionOptions{text})
		if err != nil {
			return
		}
		p := decidertest.New(policy, 3)
		if d, _ := p.Send(decidertest.InSession(1)); d.Server == "" || d.Fallbacks[1] == "" {
			t.Errorf("%q chose %+v", text, d)
		}
	})
}

// A formula means what the same arithmetic means in Go.
func TestFormulaProperty(t *testing.T) {
	f, _, err := parseFormula("in_flight * 2 - waiting / (1 + abs(tokens)) < 3 ? min(in_flight, tokens) : -waiting")
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for k, q := range quantities {
		at[q.name] = k
	}
	rapid.Check(t, func(t *rapid.T) {
		x, y, z := rapid.Float64Range(-9, 9).Draw(t, "x"), rapid.Float64Range(-9, 9).Draw(t, "y"), rapid.Float64Range(-9, 9).Draw(t, "z")
		v := make([]float64, len(quantities))
		v[at["in_flight"]], v[at["waiting"]], v[at["tokens"]] = x, y, z
		want := -y
		if x*2-y/(1+math.Abs(z)) < 3 {
			want = math.Min(x, z)
		}
		if got := f(v); got != want {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}
