package tracing

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// exporter makes spans of the official SDK and sends them. One goroutine uses it.
type exporter struct {
	client   *otlptrace.Exporter
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	spans    []sdk.ReadOnlySpan
}

// Target is the URL that spans are posted to.
func Target(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("not the URL of a collector")
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}

func newExporter(o Options) (*exporter, error) {
	target, err := Target(o.Endpoint)
	if err != nil {
		return nil, err
	}
	// It connects with the first spans. Headers of the environment, such as
	// OTEL_EXPORTER_OTLP_HEADERS with a key, hold.
	client, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(target),
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression), otlptracehttp.WithTimeout(sendTimeout))
	if err != nil {
		return nil, err
	}
	e := &exporter{client: client}
	e.provider = sdk.NewTracerProvider(sdk.WithSampler(sdk.AlwaysSample()), sdk.WithSpanProcessor(collector{e}),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "pointsman"),
			attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", rand.Text()),
		)))
	e.tracer = e.provider.Tracer("pointsman")
	return e, nil
}

// add makes the span of an event.
func (e *exporter) add(ev *event) {
	ctx := context.Background()
	if ev.Parent != [8]byte{} {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: ev.Trace, SpanID: ev.Parent, TraceFlags: trace.FlagsSampled, Remote: true,
		}))
	}
	name := "route"
	if ev.model != "" {
		name += " " + ev.model
	}
	list := make([]attribute.KeyValue, 0, 16)
	str := func(key, v string) {
		if v != "" {
			list = append(list, attribute.String(key, v))
		}
	}
	num := func(key string, v int) {
		if v > 0 {
			list = append(list, attribute.Int(key, v))
		}
	}
	str("gen_ai.operation.name", ev.operation)
	str("gen_ai.request.model", ev.model)
	num("gen_ai.request.max_tokens", ev.output)
	list = append(list, attribute.Bool("gen_ai.request.stream", ev.stream))
	str("pointsman.proxy", ev.proxy)
	str("pointsman.pool", ev.pool)
	str("pointsman.replica", ev.server)
	str("pointsman.fallback1", ev.fallbacks[0])
	str("pointsman.fallback2", ev.fallbacks[1])
	str("pointsman.why", ev.why)
	str("pointsman.band", ev.band)
	num("pointsman.prompt_tokens", ev.input)
	if ev.wait > 0 {
		list = append(list, attribute.Float64("pointsman.wait_seconds", ev.wait.Seconds()))
	}
	if ev.unsteered {
		list = append(list, attribute.Bool("pointsman.shadow", true))
	}
	if ev.status != 0 {
		list = append(list, attribute.Int("http.response.status_code", ev.status), attribute.String("error.type", ev.why))
	}
	_, span := e.tracer.Start(ctx, name, trace.WithTimestamp(ev.Start), trace.WithAttributes(list...))
	if ev.status != 0 {
		span.SetStatus(codes.Error, ev.why)
	}
	span.End(trace.WithTimestamp(ev.end))
}

func (e *exporter) waiting() int { return len(e.spans) }

// send sends the spans, and forgets them whatever comes of it.
func (e *exporter) send(ctx context.Context) error {
	err := e.client.ExportSpans(ctx, e.spans)
	clear(e.spans)
	e.spans = e.spans[:0]
	return err
}

func (e *exporter) close() {
	ctx, cancel := context.WithTimeout(context.Background(), lastTimeout)
	defer cancel()
	_ = e.provider.Shutdown(ctx) // it has nothing left to send
	_ = e.client.Shutdown(ctx)
}

// collector is the processor that hands spans to send: its goroutine is also that which
// ends them.
type collector struct{ e *exporter }

func (collector) OnStart(context.Context, sdk.ReadWriteSpan) {}
func (c collector) OnEnd(s sdk.ReadOnlySpan)                 { c.e.spans = append(c.e.spans, s) }
func (collector) ForceFlush(context.Context) error           { return nil }
func (collector) Shutdown(context.Context) error             { return nil }

var _ sdk.SpanProcessor = collector{}
