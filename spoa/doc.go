// Package spoa serves HAProxy's Stream Processing Offload Protocol: it accepts
// connections, guards them, hands every message to a Handler and sends the
// variables that the Handler sets back in the ACK. It is transport and knows
// nothing of decisions.
//
// The frames are decoded and encoded by negasus/haproxy-spoe-go, which trusts
// its peer and panics on what it does not expect. A guard stands between that
// library and the socket: it reads whole frames, checks every length and type
// in them, and lets the library see only what it decodes safely. Large values
// never reach the library: the guard keeps them in pooled buffers for the time
// of the call, so that a big body costs no garbage.
package spoa
