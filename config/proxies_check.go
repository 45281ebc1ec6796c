package config

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

var versionForm = regexp.MustCompile(`^(\d{1,2})\.(\d{1,2})(\.\d{1,3})?$`)

func (v *validator) nginx() {
	n := &v.config.Nginx
	if _, err := parseHostPort(n.Bind); err != nil {
		v.refuse("nginx.bind", "%s; %v, or :8080", quote(n.Bind), err)
	}
	within(v, "nginx.processing_timeout", n.ProcessingTimeout, time.Millisecond, time.Hour)
	within(v, "nginx.body_buffer", n.BodyBuffer, 16<<10, 64<<20)
}

func (v *validator) haproxy() {
	h := &v.config.HAProxy
	if h.RuntimeAPI != "" {
		_, address, err := ParseAddress(h.RuntimeAPI)
		if err == nil && address[0] == ':' {
			err = errAddress
		}
		if err != nil {
			v.refuse("haproxy.runtime_api", "%s is not an address; %v", quote(h.RuntimeAPI), err)
		}
	}
	if h.Version != "" {
		var major, minor int
		if m := versionForm.FindStringSubmatch(h.Version); m != nil {
			major, _ = strconv.Atoi(m[1])
			minor, _ = strconv.Atoi(m[2])
		}
		if major < 2 || major == 2 && minor < 6 {
			v.refuse("haproxy.version", "%s; want 2.6 or later, such as 3.2", quote(h.Version))
		}
	}
	if _, err := parseHostPort(h.Bind); err != nil && !everywhere(h.Bind) {
		v.refuse("haproxy.bind", "%s; %v, or :8080", quote(h.Bind), err)
	}
	within(v, "haproxy.bufsize", h.Bufsize, 16<<10, MaxBufsize)
	if h.LargeBufsize != 0 {
		within(v, "haproxy.large_bufsize", h.LargeBufsize, 16<<10, 64<<20)
		if h.LargeBufsize <= h.Bufsize {
			v.refuse("haproxy.large_bufsize", "%v; want more than haproxy.bufsize, %v", h.LargeBufsize, h.Bufsize)
		}
	}
	within(v, "haproxy.poll", h.Poll, 10*time.Millisecond, time.Minute)
	within(v, "haproxy.processing_timeout", h.ProcessingTimeout, time.Millisecond, time.Hour)
}

// MaxBufsize bounds haproxy.bufsize. What is not used of a buffer costs no memory.
const MaxBufsize = 16 << 20

// everywhere recognises *:port, which only HAProxy understands.
func everywhere(bind string) bool {
	rest, ok := strings.CutPrefix(bind, "*")
	host, err := parseHostPort(rest)
	return ok && host == "" && err == nil
}
