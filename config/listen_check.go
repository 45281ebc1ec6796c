package config

import (
	"regexp"
	"strconv"
	"strings"
)

var (
	socketMode = regexp.MustCompile(`^0[0-7]{3}$`)
	groupName  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$`)
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
	if !socketMode.MatchString(l.SocketMode) {
		v.refuse("listen.socket_mode", "%s is not the mode of a socket; want four octal digits, such as \"0660\", in quotes", quote(l.SocketMode))
	}
	if l.SocketGroup != "" && !groupName.MatchString(l.SocketGroup) {
		v.refuse("listen.socket_group", "%s is not a group; want a name or a number", quote(l.SocketGroup))
	}
	for i, h := range l.AdminHosts {
		if h == "" || strings.ContainsFunc(h, notHost) || strings.Contains(h, ":") {
			v.refuse(in("listen.admin_hosts", strconv.Itoa(i)), "%s is not a host name; want one without a port", quote(h))
		}
	}
	if l.Nginx != "" && strings.HasPrefix(l.Feed, "unix:") {
		v.refuse("listen.feed", "nginx sends its log lines over UDP; with listen.nginx, want host:port")
	}
}
