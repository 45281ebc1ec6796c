package config

import (
	"strconv"
	"strings"
)

// Modes of a pool besides a percentage: all requests are decided, or none of them
// and all only compared.
const (
	ModeDecide = "decide"
	ModeShadow = "shadow"
)

// decidedShare is the share of requests that are decided in a mode.
func decidedShare(mode string) (share float64, ok bool) {
	switch mode {
	case ModeDecide:
		return 1, true
	case ModeShadow:
		return 0, true
	}
	number, ok := strings.CutSuffix(mode, "%")
	n, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(n >= 0.1 && n <= 99.9) {
		return 0, false
	}
	return n / 100, true
}

func (v *validator) mode(path, mode string) {
	if _, ok := decidedShare(mode); !ok {
		v.refuse(path, "unknown %s; want decide, shadow, or the share to decide, such as 10%%", quote(mode))
	}
}

// Shadow is the share of the requests of p that are left to the proxy.
func (c *Config) Shadow(p *Pool) float64 {
	mode := p.Mode
	if mode == "" {
		mode = c.Mode
	}
	share, _ := decidedShare(mode) // refused by Parse
	return 1 - share
}
