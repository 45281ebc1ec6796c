package admin

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/valyala/fasthttp"
)

// A page whose name resolves to the admin address reads nothing, and cannot post.
func TestBrowsersAreRefused(t *testing.T) {
	b := newBench(t)
	b.server.Hosts = []string{"gw.example.org"}
	for host, want := range map[string]int{
		"evil.example.com": fasthttp.StatusMisdirectedRequest, "evil.example.com:9909": fasthttp.StatusMisdirectedRequest,
		"127.0.0.1.evil.example.com": fasthttp.StatusMisdirectedRequest, "gw.example.org.": fasthttp.StatusMisdirectedRequest,
		"127.0.0.1:9909": fasthttp.StatusOK, "[::1]:9909": fasthttp.StatusOK, "localhost": fasthttp.StatusOK,
		"localhost:9909": fasthttp.StatusOK, "gateway-1:9909": fasthttp.StatusOK, "GW.example.org:1": fasthttp.StatusOK,
	} {
		if status, text := b.do("GET", "/status", "", "Host: "+host); status != want {
			t.Errorf("%s: %d %.60s", host, status, text)
		}
	}
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json"} {
		if status, _ := b.do("POST", "/debug/explain", request("m", "x"), "Content-Type: "+kind); status != fasthttp.StatusUnsupportedMediaType {
			t.Errorf("a body of type %q: %d", kind, status)
		}
	}
}

// On a unix socket every host will do: no page gets there.
func TestUnixSocketTakesAnyHost(t *testing.T) {
	b := newBench(t)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	go b.server.Serve(l)
	c := &fasthttp.HostClient{Addr: "admin", Dial: func(string) (net.Conn, error) { return net.Dial("unix", l.Addr().String()) }}
	defer c.CloseIdleConnections()
	if status, _, err := c.Get(nil, "http://any.example.com/healthz"); err != nil || status != 200 {
		t.Errorf("%d %v", status, err)
	}
}
