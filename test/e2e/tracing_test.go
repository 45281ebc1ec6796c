package e2e

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"pointsman/test/rig"
)

// TestTracing has requests with a traceparent pass a real proxy. The span of each
// decision reaches the collector as a child of the request's own, and names the replica
// that served. A collector that is gone fails no request.
func TestTracing(t *testing.T) {
	const parent = "00f067aa0ba902b7"
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		var mu sync.Mutex
		replicas := map[string]string{} // by trace
		collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
			z, err := gzip.NewReader(q.Body)
			if err != nil {
				return // a question of check, without a body
			}
			text, err := io.ReadAll(z)
			var m collect.ExportTraceServiceRequest
			if err != nil || proto.Unmarshal(text, &m) != nil {
				t.Errorf("%v, %d bytes", err, len(text))
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, rs := range m.ResourceSpans {
				for _, ss := range rs.ScopeSpans {
					for _, span := range ss.Spans {
						for _, a := range span.Attributes {
							if a.Key == "pointsman.replica" && hex.EncodeToString(span.ParentSpanId) == parent {
								replicas[hex.EncodeToString(span.TraceId)] = a.Value.GetStringValue()
							}
						}
					}
				}
			}
		}))
		defer collector.Close()
		s, _ := rig.Replicas(t, r, 2, "round_robin", fmt.Sprintf("tracing: {endpoint: %q, sample: 0}", collector.URL))
		s.Patient()
		s.Start()
		client := rig.NewClient(4, true, false)
		defer client.CloseIdleConnections()
		served := map[string]string{}
		send := func(from, to int) {
			for i := from; i < to; i++ {
				trace := fmt.Sprintf("%032x", i+1)
				c := rig.Call{Body: rig.Chat(rig.Model, 300, 4, i%2 == 0, i), Header: map[string]string{"Traceparent": "00-" + trace + "-" + parent + "-01"}}
				a := c.Do(client, s.Front)
				if err := c.Check(a); err != nil {
					t.Fatal(err)
				}
				served[trace] = a.Engine
			}
		}
		send(0, 6)
		rig.Eventually(t, 20*time.Second, "the spans arrive", func() (bool, string) {
			mu.Lock()
			defer mu.Unlock()
			return len(replicas) == len(served), fmt.Sprint(replicas)
		})
		mu.Lock()
		for trace, replica := range replicas {
			if !strings.HasPrefix(served[trace], replica) {
				t.Errorf("%s: the span says %s, and %s served", trace, replica, served[trace])
			}
		}
		mu.Unlock()
		collector.Close()
		send(6, 10)
	})
}
