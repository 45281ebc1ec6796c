// Package spoa serves HAProxy's Stream Processing Offload Protocol: it accepts
// connections, guards them, hands every message to a Handler and sends the
// variables that the Handler sets back in the ACK. It is transport and knows
// nothing of decisions.
//
// This package decodes frames itself, in one pass over pooled memory that checks
// every length and type; a value is a slice of its frame. So a large body costs
// no garbage and a malformed frame ends its own connection only. Varints, types,
// actions and the encoding of answers are those of negasus/haproxy-spoe-go, whose
// decoder trusts its peer and serves as the oracle in the tests. See
// docs/decisions/0005-one-spoe-decode.md. A request whose answer is delayed costs
// the goroutine that reads its connection, and 1 to 2 KB.
package spoa
