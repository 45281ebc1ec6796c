package config

import (
	"net/url"
	"slices"
)

// Tracing says where spans of decisions are sent, and of how many. Without an endpoint
// there are none.
type Tracing struct {
	// Endpoint is the URL of a collector that takes OTLP over HTTP, as
	// http://127.0.0.1:4318.
	Endpoint string `yaml:"endpoint"`
	// Sample is the share of the requests that name no trace, 0 to 1.
	Sample float64 `yaml:"sample"`
}

// DefaultSample is the default of Tracing.Sample.
const DefaultSample = 0.01

func (v *validator) tracing() {
	t := &v.config.Tracing
	within(v, "tracing.sample", t.Sample, 0, 1)
	if t.Endpoint == "" {
		return
	}
	u, err := url.Parse(t.Endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || !slices.Contains([]string{"http", "https"}, u.Scheme) {
		v.refuse("tracing.endpoint", "not the URL of a collector; want http://host:4318 or https://…, without a user") // it may hold a password
	}
}
