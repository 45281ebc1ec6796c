package agent

import (
	"pointsman/config"
	"pointsman/tracing"
)

// traced is the tracing of the configuration.
type traced struct {
	conf   config.Tracing
	counts *tracing.Counts
	tracer *tracing.Tracer // nil = off
}

// applyTracing starts and stops the tracing as configured.
func (a *Agent) applyTracing() {
	c := a.conf.File.Tracing
	if c == a.tracing.conf {
		return
	}
	a.stopTracing()
	a.tracing.conf = c
	if c.Endpoint == "" {
		return
	}
	t, err := tracing.Start(tracing.Options{Endpoint: c.Endpoint, Sample: c.Sample, Version: a.Version}, a.tracing.counts, a.Log)
	if err != nil {
		a.Log.Error("no tracing", "error", err)
		return
	}
	a.tracing.tracer = t
	a.intake.SetTracer(t)
	a.Log.Info("tracing decisions", "endpoint", c.Endpoint, "sample", c.Sample)
}

// stopTracing ends the tracing. It sends pending spans first, for a second at most.
func (a *Agent) stopTracing() {
	if a.tracing.tracer == nil {
		return
	}
	a.intake.SetTracer(nil)
	a.tracing.tracer.Stop()
	a.tracing.tracer, a.tracing.conf = nil, config.Tracing{}
}
