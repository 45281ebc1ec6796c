package spoa

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestValues(t *testing.T) {
	long := strings.Repeat("0123456789", 7_000)
	check := func(m *Message, w *Reply) {
		for _, k := range []string{"i32", "u32", "i64", "u64", "min", "max", "text", "bin"} {
			if v, ok := m.Int(k); ok {
				w.SetInt(k, v)
			}
		}
		for _, k := range []string{"huge", "word", "none", "yes", "long9"} {
			if v, ok := m.Int(k); ok {
				t.Errorf("Int(%q) = %d", k, v)
			}
		}
		if v, ok := m.Bool("yes"); ok {
			w.SetBool("yes", v)
		}
		if v, ok := m.Bool("no"); ok {
			w.SetBool("no", v)
		}
		if _, ok := m.Bool("i64"); ok {
			t.Error("an integer is a bool")
		}
		for _, k := range []string{"i64", "yes", "none", "absent"} {
			if m.Bytes(k) != nil {
				t.Errorf("Bytes(%q) = %q", k, m.Bytes(k))
			}
		}
		w.SetString("long8", m.String("long8")) // outlives the handler
		w.SetInt("long9", int64(len(m.Bytes("long9"))))
		w.SetString("name", m.Name())
		w.SetString("word", m.String("word"))
	}
	r := start(t, "unix", &Server{Handler: check})
	c := r.connect(t, 1<<20)
	a, err := c.ask(1<<63, messageOf("m",
		arg{"i32", int32(-5)}, arg{"u32", uint32(math.MaxUint32)}, arg{"i64", int64(-6)},
		arg{"u64", uint64(7)}, arg{"huge", uint64(math.MaxUint64)}, arg{"min", int64(math.MinInt64)},
		arg{"max", int64(math.MaxInt64)}, arg{"text", "-12"}, arg{"bin", []byte("34")}, arg{"word", "x1"},
		arg{"none", nil}, arg{"yes", true}, arg{"no", false}, arg{"yes", false},
		arg{"long8", long}, arg{"ip4", raw{6, 1, 2, 3, 4}}, arg{"ip6", append(raw{7}, make([]byte, 16)...)},
		arg{"long9", []byte(long)},
	))
	must(t, err)
	want := map[string]any{
		"i32": "-5", "u32": int64(math.MaxUint32), "i64": "-6", "u64": int64(7),
		"min": "-9223372036854775808", "max": "9223372036854775807", "text": "-12", "bin": int64(34),
		"yes": true, "no": false, "long8": long, "long9": int64(len(long)), "name": "m", "word": "x1",
	}
	for k, v := range want {
		if a.vars[k] != v {
			t.Errorf("%s = %.40v, want %.40v", k, a.vars[k], v)
		}
	}
	if len(a.vars) != len(want) {
		t.Errorf("%d variables, want %d: %.200v", len(a.vars), len(want), a.vars)
	}
}

func TestIntegersOut(t *testing.T) {
	cases := []struct {
		v    int64
		want any
	}{
		{0, int64(0)}, {239, int64(239)}, {240, int64(240)}, {1 << 32, int64(1 << 32)},
		{1<<53 - 1, int64(1<<53 - 1)}, {1 << 53, int64(1 << 53)}, {1<<53 + 1, "9007199254740993"},
		{1 << 54, "18014398509481984"}, {math.MaxInt64, "9223372036854775807"},
		{-1, "-1"}, {math.MinInt64, "-9223372036854775808"},
	}
	r := start(t, "unix", &Server{Handler: func(m *Message, w *Reply) {
		for i, tc := range cases {
			w.SetInt(fmt.Sprint(i), tc.v)
		}
	}})
	a, err := r.connect(t, 16380).ask(1, messageOf("m"))
	must(t, err)
	for i, tc := range cases {
		if got := a.vars[fmt.Sprint(i)]; got != tc.want {
			t.Errorf("%d arrives as %T %v", tc.v, got, got)
		}
	}
}

func TestAnswerFitsFrame(t *testing.T) {
	r := start(t, "unix", &Server{Handler: func(m *Message, w *Reply) {
		n, _ := m.Int("n")
		w.SetString("big", strings.Repeat("x", int(n)))
		for i := range 100 {
			w.SetInt(fmt.Sprintf("v%d", i), 1<<53)
		}
	}})
	for _, limit := range []int{256, 1000, 16380} {
		c := r.connect(t, limit)
		for n := limit - 100; n <= limit+1; n++ {
			a, err := c.ask(math.MaxUint64, messageOf("m", arg{"n", int64(n)}))
			must(t, err)
			if a.size > limit {
				t.Fatalf("ACK of %d bytes, limit %d", a.size, limit)
			}
			if n == limit-100 && a.vars["big"] == nil {
				t.Errorf("limit %d: a value of %d bytes was dropped", limit, n)
			}
		}
	}
	if r.Stats().Dropped == 0 {
		t.Error("nothing counted as dropped")
	}
}
