package policy

import "pointsman/decider"

// StickySessions keeps the replica that the session was sent to last, whatever
// policy sent it there, so that the KV cache of the conversation is used again.
type StickySessions struct{}

// Name implements Filter.
func (StickySessions) Name() string { return "sticky_sessions" }

// UsesSessions implements SessionUser.
func (StickySessions) UsesSessions() bool { return true }

// Keep implements Filter.
func (StickySessions) Keep(r *decider.Request, v *decider.View, dst []int) []int {
	last := v.SessionReplica(r)
	if last == nil {
		return dst
	}
	return v.Keep(dst, func(c *decider.Replica) bool { return c == last })
}

var (
	_ decider.Filter      = StickySessions{}
	_ decider.SessionUser = StickySessions{}
)
