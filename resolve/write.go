package resolve

import (
	"maps"

	"pointsman/config"
)

// Write returns the configuration in force as YAML: with all defaults, the options of
// the policies, and the admissions as they take effect. Secrets are masked.
func (r *Config) Write() ([]byte, error) {
	c := *r.File
	c.Pools = maps.Clone(c.Pools)
	for i := range r.Pools {
		p := &r.Pools[i]
		if p.Admission != nil {
			own := *p.Pool
			own.Admission = *p.Admission
			c.Pools[p.Name] = &own
		}
	}
	return c.Write(func(p *config.Policy) any {
		o, err := r.policies.Options(p.Name, p)
		if err != nil {
			return nil // Resolve has refused it
		}
		return o
	})
}
