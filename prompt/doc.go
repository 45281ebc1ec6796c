// Package prompt reads what routing needs out of the JSON body of an LLM
// request in one forward pass. The body may be cut anywhere, as a proxy's
// buffer cuts it: what was wholly there is reported, what was not is absent.
package prompt
