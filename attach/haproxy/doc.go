// Package haproxy attaches pointsman to an HAProxy that is already running: it reads its
// configuration, finds the backends that lead to LLM engines, and works out the lines that
// make them ask the agent.
package haproxy
