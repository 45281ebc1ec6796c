// Package spoa serves HAProxy's Stream Processing Offload Protocol: it accepts
// connections, guards them, hands every message to a Handler and sends the
// variables that the Handler sets back in the ACK. It is transport and knows
// nothing of decisions.
//
// The frames are decoded and encoded by negasus/haproxy-spoe-go, which trusts
// its peer and panics on what it does not expect. So every frame is read whole
// and every length and type in it is checked before that library sees it. Large
// values never reach the library: they stay in pooled buffers for the time of
// the call, so that a big body costs no garbage. A request whose answer is kept
// back costs the goroutine that reads its connection, and 1 to 2 KB.
package spoa
