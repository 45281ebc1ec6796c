package resolve

import "time"

// holdMargin is by how much a proxy's timeout exceeds the longest hold: the
// agent ends holds with a delay of one tick, and an answer needs its time too.
const holdMargin = time.Second

// ProcessingTimeout is how long a proxy must wait for a decision while the agent
// holds requests for at most hold.
func ProcessingTimeout(hold time.Duration) time.Duration { return hold + holdMargin }

// HAProxyTimeout is how long HAProxy waits for a decision.
func (r *Config) HAProxyTimeout() (time.Duration, error) {
	return r.timeout("haproxy.processing_timeout", r.File.HAProxy.ProcessingTimeout)
}

// NginxTimeout is how long nginx waits for a decision.
func (r *Config) NginxTimeout() (time.Duration, error) {
	return r.timeout("nginx.processing_timeout", r.File.Nginx.ProcessingTimeout)
}

// timeout is the value of key or, where the file does not set key, what the
// longest hold needs.
func (r *Config) timeout(key string, value time.Duration) (time.Duration, error) {
	switch {
	case r.hold == 0 || value >= ProcessingTimeout(r.hold):
		return value, nil
	case r.File.Given(key):
		return 0, r.File.Refusal(nil, key, "is shorter than the longest hold of an admission; want %v or more, or leave the key out", ProcessingTimeout(r.hold))
	}
	return ProcessingTimeout(r.hold), nil
}
