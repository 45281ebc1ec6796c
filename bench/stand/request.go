package stand

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// Model is the model that all replicas serve.
const Model = "demo"

// Path is the path of the requests.
const Path = "/v1/chat/completions"

// Body returns a chat request of about size bytes.
func Body(size int, stream bool) []byte {
	head := `{"model":"` + Model + `","messages":[{"role":"system","content":"You answer."},{"role":"user","content":"`
	end := fmt.Sprintf(`"}],"stream":%v,"max_tokens":4}`, stream)
	text := strings.Repeat("the quick brown fox jumps over the lazy dog\\n", size/45+1)
	n := max(0, size-len(head)-len(end))
	return []byte(head + strings.TrimRight(text[:n], "\\") + end)
}

// Post sends a request to url with client, whose host is not set yet, and returns the
// answer's body.
func Post(client *fasthttp.HostClient, url string, body []byte, timeout time.Duration) ([]byte, error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI(url + Path)
	if client.Addr == "" {
		client.Addr = string(req.URI().Host())
	}
	req.Header.SetMethod(fasthttp.MethodPost)
	req.Header.SetContentType("application/json")
	req.SetBody(body)
	if err := client.DoTimeout(req, resp, timeout); err != nil {
		return nil, err
	}
	if resp.StatusCode() != fasthttp.StatusOK {
		return nil, fmt.Errorf("%d %.300s", resp.StatusCode(), resp.Body())
	}
	return slices.Clone(resp.Body()), nil
}

// NewClient returns a client of url with that many connections. It does not retry.
func NewClient(url string, connections int) *fasthttp.HostClient {
	return &fasthttp.HostClient{
		Addr: strings.TrimPrefix(url, "http://"), MaxConns: connections, MaxIdemponentCallAttempts: 1,
		RetryIfErr: func(*fasthttp.Request, int, error) (bool, bool) { return false, false },
	}
}

// Load is the result of a closed loop of requests.
type Load struct {
	Latencies []float64 // in µs, of those that were answered
	Bytes     int       // of the answers
	Chunks    int       // the events of streams
	Failed    int
	Err       error // the first one
	Took      time.Duration
}

// Closed sends requests from that many clients, each one's after the other, until n
// have been sent or the time is over.
func Closed(client *fasthttp.HostClient, url string, body []byte, concurrency, n int, most time.Duration) Load {
	var mu sync.Mutex
	var all Load
	var wg sync.WaitGroup
	begun := time.Now()
	for c := range concurrency {
		wg.Go(func() {
			var own Load
			for i := c; i < n && time.Since(begun) < most; i += concurrency {
				start := time.Now()
				answer, err := Post(client, url, body, 10*time.Second)
				if err != nil {
					own.Failed++
					own.Err = err
					continue
				}
				own.Latencies = append(own.Latencies, float64(time.Since(start).Microseconds()))
				own.Bytes += len(answer)
				own.Chunks += strings.Count(string(answer), "data: ")
			}
			mu.Lock()
			defer mu.Unlock()
			all.Latencies = append(all.Latencies, own.Latencies...)
			all.Bytes, all.Chunks, all.Failed = all.Bytes+own.Bytes, all.Chunks+own.Chunks, all.Failed+own.Failed
			if all.Err == nil {
				all.Err = own.Err
			}
		})
	}
	wg.Wait()
	all.Took = time.Since(begun)
	return all
}

// Median returns the median of values, 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return s[len(s)/2]
}

// Spread returns half the distance from the least to the greatest of values.
func Spread(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return (slices.Max(values) - slices.Min(values)) / 2
}
