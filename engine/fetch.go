package engine

import (
	"errors"
	"net"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
)

// maxPage bounds a page of metrics, in bytes.
const maxPage = 16 << 20

// errHost tells of an address that is none.
var errHost = errors.New("the replica's address is no host:port")

// httpFetcher gets pages from one engine over one connection that is kept. It
// is not safe for concurrent use.
type httpFetcher struct {
	address string
	client  *fasthttp.HostClient
	host    string // the client's
	req     fasthttp.Request
	resp    fasthttp.Response
}

func newHTTPFetcher(address string) *httpFetcher { return &httpFetcher{address: address} }

// fetch gets path, which may begin with a port of its own. Other answers than
// 200 are a statusError, or errStranger where there is nothing to see.
func (f *httpFetcher) fetch(path string, timeout time.Duration) ([]byte, error) {
	host := f.address
	if strings.HasPrefix(path, ":") {
		slash := strings.IndexByte(path, '/')
		name, _, err := net.SplitHostPort(f.address)
		if slash < 0 || err != nil {
			return nil, errHost
		}
		host, path = net.JoinHostPort(name, path[1:slash]), path[slash:]
	}
	if f.client == nil || f.host != host {
		f.close()
		f.host = host
		f.client = &fasthttp.HostClient{
			Addr:           host,
			MaxConns:       1,
			ReadBufferSize: 32 << 10, // most pages in one read
			Dial: func(addr string) (net.Conn, error) {
				return net.DialTimeout("tcp", addr, timeout)
			},
			MaxIdleConnDuration:       time.Minute,
			MaxResponseBodySize:       maxPage,
			MaxIdemponentCallAttempts: 2, // the engine may just have closed the connection
			NoDefaultUserAgentHeader:  true,
			DisablePathNormalizing:    true,
		}
		f.req.Reset()
		f.req.Header.SetHost(host)
		f.req.Header.Set("User-Agent", "pointsman")
	}
	f.req.SetRequestURI(path)
	f.req.URI().SetHost(host)
	if err := f.client.DoTimeout(&f.req, &f.resp, timeout); err != nil {
		return nil, err
	}
	switch code := f.resp.StatusCode(); code {
	case fasthttp.StatusOK:
		return f.resp.Body(), nil
	case fasthttp.StatusNotFound, fasthttp.StatusMethodNotAllowed, fasthttp.StatusNotImplemented:
		return nil, errStranger
	default:
		return nil, statusError(code)
	}
}

// close gives the connection up.
func (f *httpFetcher) close() {
	if f.client != nil {
		f.client.CloseIdleConnections()
	}
}
