package fakevllm

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// RankHeader names the header of a request that says which rank serves it.
const RankHeader = "X-Data-Parallel-Rank"

// rank is o for one of several engines in a server.
func (o Options) rank(n int) Options {
	o.EventForm.Rank = n
	o.Events, o.Replay = offsetPort(o.Events, n), offsetPort(o.Replay, n)
	return o
}

// offsetPort adds n to the port at the end of an endpoint.
func offsetPort(endpoint string, n int) string {
	i := strings.LastIndexByte(endpoint, ':')
	port, err := strconv.Atoi(endpoint[i+1:])
	if n == 0 || err != nil {
		return endpoint
	}
	return fmt.Sprint(endpoint[:i+1], port+n)
}

// engineOf returns the engine that a request names, or else the least loaded one.
func engineOf(s *Server, h http.Header) (*engine, *apiError) {
	if v := h.Get(RankHeader); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n >= len(s.ranks) {
			return nil, badRequest("data_parallel_rank %.20s is out of range [0, %d)", v, len(s.ranks))
		}
		return s.ranks[n], nil
	}
	best, least := s.engine, -1
	for _, e := range s.ranks {
		st := e.stats()
		if n := st.Running + st.Waiting; least < 0 || n < least {
			best, least = e, n
		}
	}
	return best, nil
}
