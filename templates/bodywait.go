package templates

import "time"

// BodyWait is how long HAProxy waits for a body before the question. Before 3.0 that timer
// runs on while the agent is asked: a stream whose timer has ended spins, and after a second
// of it HAProxy aborts. So it must not end before a hold that begins within BodyTimeout.
func (v *view) BodyWait() time.Duration {
	if v.Version.AtLeast(3, 0) || v.ProcessingTimeout < time.Second {
		return v.BodyTimeout
	}
	return v.BodyTimeout + v.ProcessingTimeout
}
