// Package haproxy attaches pointsman to an HAProxy that runs already: it reads
// its configuration, finds the backends that lead to LLM engines, and works out
// the lines that have them ask the agent.
package haproxy
