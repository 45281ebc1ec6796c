package config

// Warnings are what is allowed but probably not meant, in the order of the file.
func (c *Config) Warnings() []Error {
	var w Errors
	warn := func(path, format string, args ...any) {
		w = append(w, c.src.errorAt(path, format, args...))
	}
	spoeOff := "no proxy can ask for a decision"
	if c.Listen.Nginx != "" {
		spoeOff = "" // as it should be without an HAProxy
	}
	for _, l := range []struct{ path, value, open, off string }{
		{"listen.spoe", c.Listen.SPOE, "anyone who reaches it can send requests and read decisions", spoeOff},
		{"listen.nginx", c.Listen.Nginx, "anyone who reaches it can read decisions and make reservations for requests that never come", ""},
		{"listen.feed", c.Listen.Feed, "anyone who reaches it can forge outcomes", "the agent learns no outcome, and each reservation lasts for its whole lease"},
		{"listen.admin", c.Listen.Admin, "anyone who reaches it can read metrics and decisions", ""},
	} {
		if l.value == "" {
			if l.off != "" {
				warn(l.path, "off: %s", l.off)
			}
			continue
		}
		if network, address, err := ParseAddress(l.value); err == nil && !loopback(network, address) {
			warn(l.path, "%s is reachable from other machines: %s", quote(l.value), l.open)
		}
	}
	routed := map[string]bool{c.DefaultPool: true}
	for _, r := range c.Models {
		for pool := range r.Split {
			routed[pool] = true
		}
	}
	for _, p := range c.Ordered() {
		takesAll := len(c.Pools) == 1 && len(c.Models) == 0
		if len(p.Models)+len(p.LoRA) == 0 && !routed[p.Name] && !takesAll {
			warn(in("pools", p.Name), "no model routes here: only requests that the proxy itself assigns to this pool reach it")
		}
	}
	return w.sorted()
}
