// Package engines tests against engines that nobody here wrote: llama.cpp, and with
// POINTSMAN_ENGINES=1 (`make engines`) vLLM on CPUs too, behind real proxies. Their
// models are tiny and random (test/engines/tiny), which is enough for everything but
// sense. test/setup.sh brings the engines.
package engines
