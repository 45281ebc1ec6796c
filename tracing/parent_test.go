package tracing

import (
	"context"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// The official library agrees on what a traceparent is.
func agrees(t *testing.T, v string) {
	t.Helper()
	c := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": v}))
	p, ok := parse([]byte(v))
	if ok != c.IsValid() {
		t.Fatalf("%q: %v, the library %v", v, ok, c.IsValid())
	}
	if ok && (trace.TraceID(p.trace) != c.TraceID() || trace.SpanID(p.span) != c.SpanID() || p.sampled != c.IsSampled()) {
		t.Fatalf("%q: %+v, the library %v", v, p, c)
	}
}

func FuzzTraceparent(f *testing.F) {
	for _, v := range []string{
		header, strings.Replace(header, "-01", "-00", 1), strings.ToUpper(header), header + "-more", "01" + header[2:] + "-more", "ff" + header[2:],
		header[:54], "", "00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", header[:36] + strings.Repeat("0", 16) + "-01", "cc" + header[2:] + "x",
	} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) { agrees(t, v) })
}
