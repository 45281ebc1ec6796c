package client

import "testing"

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.00117729: "0.001177", 11.0015: "11", 999.96: "1000", 10000: "10000", -123456.7: "-123457"} {
		if got := figure(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
}
