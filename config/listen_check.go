package config

import (
	"strings"
)

func (v *validator) listen() {
	l := &v.config.Listen
	used := map[string]string{}
	for _, k := range []struct {
		path  string
		value *string
	}{{"listen.spoe", &l.SPOE}, {"listen.nginx", &l.Nginx}, {"listen.feed", &l.Feed}, {"listen.admin", &l.Admin}} {
		if *k.value == "off" {
			*k.value = ""
		}
		if *k.value == "" {
			continue
		}
		network, address, err := ParseAddress(*k.value)
		switch {
		case err != nil:
			v.refuse(k.path, "%s is not an address to listen on; %v, or off", quote(*k.value), err)
		case address[0] == ':':
			v.refuse(k.path, "%s is open to the network; want 127.0.0.1%s, or 0.0.0.0%[2]s if that is meant", quote(*k.value), address)
		case used[address] != "":
			v.refuse(k.path, "%s is already the address of %s", quote(*k.value), used[address])
		}
		if network != "" {
			used[address] = k.path
		}
	}
	if l.Nginx != "" && strings.HasPrefix(l.Feed, "unix:") {
		v.refuse("listen.feed", "nginx sends its log lines over UDP; with listen.nginx, want host:port")
	}
}
