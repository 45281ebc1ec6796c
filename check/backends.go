package check

import (
	"slices"

	"pointsman/attach"
	"pointsman/haproxy"
	"pointsman/nginx"
)

// checkBackends reports a name in o.Backends that the user's own configurations do not have:
// nothing would be warned of. Files that cannot be read are reported later.
func (o *Options) checkBackends() error {
	if len(o.Backends) == 0 || len(o.HAProxyConfig) == 0 && o.NginxConfig == "" {
		return nil
	}
	var known []string
	if len(o.HAProxyConfig) > 0 {
		files, err := readFiles(o.HAProxyConfig)
		if err != nil {
			return nil
		}
		known = haproxy.Backends(files)
	}
	if o.NginxConfig != "" {
		targets, err := nginx.Targets(o.NginxConfig)
		if err != nil {
			return nil
		}
		known = append(known, targets...)
	}
	for _, name := range o.Backends {
		if !slices.Contains(known, name) {
			return attach.Unknown("no backend or upstream "+name, known)
		}
	}
	return nil
}
