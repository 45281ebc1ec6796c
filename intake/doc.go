// Package intake turns what a proxy sends into a request that a pool can decide: it
// finds the session, scans the body once, finds the pool by the model, classifies the
// request and gets the tokens of its prompt. haproxy, nginx, admin and the simulator
// all go through Intake.
//
// A request is read without allocation and without waiting for anything but a
// tokenizer, for pools whose policy compares tokens.
package intake
