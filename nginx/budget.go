package nginx

import (
	"strconv"

	"github.com/valyala/fasthttp"
)

// budgetHeaders sets the headers with the tokens that the client has left. nginx passes
// them on.
func (s *scratch) budgetHeaders(resp *fasthttp.Response) {
	b := &s.request.Budget
	if b.Tokens == 0 {
		return
	}
	s.number(resp, "x-ratelimit-limit-tokens", b.Tokens)
	s.number(resp, "x-ratelimit-remaining-tokens", b.Remaining)
	s.text = append(strconv.AppendInt(s.text[:0], int64(b.Reset), 10), 's')
	resp.Header.SetBytesV("x-ratelimit-reset-tokens", s.text)
}

// number sets a header to a number.
func (s *scratch) number(resp *fasthttp.Response, name string, n int64) {
	s.text = strconv.AppendInt(s.text[:0], n, 10)
	resp.Header.SetBytesV(name, s.text)
}
