// Package engine listens to the inference engines themselves and tells the
// decider what it hears. It scrapes their metrics, each as often as it bears;
// asks for the adapters that they list; follows the KV-cache events that some
// publish over ZeroMQ, and keeps for each replica the table of the blocks that
// these prove to be cached; and has prompts turned into token ids, for the
// policy that compares exact blocks. Nothing here is needed for a decision: what
// an engine does not tell is predicted, and a request waits for its tokens no
// longer than its policy allows.
package engine
