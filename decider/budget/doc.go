// Package budget counts the tokens that clients use, and limits them: by API key, tenant
// and model, in a sliding minute and a sliding day. It stores keys as salted hashes only.
// It does no I/O, and its clock is injected.
package budget
