package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// validator checks what the types alone do not.
type validator struct {
	config *Config
	*source
	errs Errors
}

// nameForm is what HAProxy takes as the name of a backend or a server.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,64}$`)

const nameWant = "want 1 to 64 letters, digits or _ . : -"

// refuse notes a refusal at path, unless its value, or one that it lies in, was
// refused already.
func (v *validator) refuse(path, format string, args ...any) {
	for p := path; ; p = above(p) {
		if v.bad[p] {
			return
		}
		if p == "" {
			break
		}
	}
	v.errs = append(v.errs, v.errorAt(path, format, args...))
}

func (v *validator) all(checks Checks) {
	v.listen()
	v.haproxy()
	v.nginx()
	v.oneOf("scan.duplicate_models", v.config.Scan.DuplicateModels, DuplicateModels)
	within(v, "scan.limit", v.config.Scan.Limit, 1<<10, 64<<20)
	v.record()
	v.cluster()
	v.tracing()
	v.mode("mode", v.config.Mode)
	if dir := v.config.Agent.StateDir; dir != "" && dir != "off" && (!filepath.IsAbs(dir) || strings.ContainsFunc(dir, unicode.IsControl)) {
		v.refuse("agent.state_dir", "%s; want the absolute path of a directory, such as /var/lib/pointsman, or off", quote(dir))
	}
	v.headers()
	within(v, "lease", v.config.Lease, time.Second, 24*time.Hour)
	if len(v.config.Pools) == 0 {
		v.refuse("pools", "want at least one pool, such as pools: {llama: {models: [llama], replicas: {r1: {address: 10.0.0.1:8000}}}}")
	}
	for _, p := range v.config.Ordered() {
		v.pool(p)
		if p.Mode != "" {
			v.mode(in("pools", p.Name)+".mode", p.Mode)
		}
		v.policy(p, checks)
		v.admission(p)
	}
	v.names()
	v.budgets()
}

// within refuses a value outside [lo, hi].
func within[T cmp.Ordered](v *validator, path string, value, lo, hi T) {
	if value < lo || value > hi {
		v.refuse(path, "want %s to %s, not %s", show(lo), show(hi), show(value))
	}
}

// show writes a duration as one would in the file: 24h, not 24h0m0s.
func show(value any) string {
	s := fmt.Sprint(value)
	if _, ok := value.(time.Duration); ok {
		if strings.HasSuffix(s, "m0s") {
			s = strings.TrimSuffix(s, "0s")
		}
		if strings.HasSuffix(s, "h0m") {
			s = strings.TrimSuffix(s, "0m")
		}
	}
	return s
}
