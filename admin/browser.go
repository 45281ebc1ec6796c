package admin

import (
	"bytes"
	"mime"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"
)

// A web page that an operator visits can send requests to the admin address, and read the
// answers once its own name resolves to that address (DNS rebinding). Such requests carry
// the page's name as their host. They cannot have a JSON content type unless the server
// permits it.

// addressed reports whether the request is meant for this server: by an address, by
// a name without a dot, which no page has, or by one of Hosts. Pages do not reach
// unix sockets.
func (s *Server) addressed(ctx *fasthttp.RequestCtx) bool {
	if _, ok := ctx.LocalAddr().(*net.UnixAddr); ok {
		return true
	}
	host := string(ctx.Host())
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return !strings.Contains(host, ".") || slices.ContainsFunc(s.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// isJSON reports whether a content type is that of JSON.
func isJSON(contentType []byte) bool {
	kind, _, err := mime.ParseMediaType(string(bytes.TrimSpace(contentType)))
	return err == nil && kind == "application/json"
}
