package haproxy

// Variable is a variable that an answer sets in HAProxy, below Prefix.
type Variable struct{ Name, Meaning string }

// Prefix is that of the variables of an answer.
const Prefix = "txn.pm."

// Variables are the variables that an answer may set. Those that do not apply are not set.
var Variables = []Variable{
	{"why", "the reason for the decision, a word: the policy's, or why there is none"},
	{"model", "the model, as configured"},
	{"pool", "the pool, an HAProxy backend"},
	{"server", "the replica chosen, a server of that backend"},
	{"fallback1", "the replica to try when the first one refuses the connection"},
	{"fallback2", "the replica to try after that"},
	{"rank", "the rank inside the engine, of pools with data_parallel"},
	{"prefill", "the address of the replica that computes the prompt, of pools with such replicas"},
	{"prio", "the priority class for HAProxy's queues"},
	{"offset", "the place within that class, in milliseconds"},
	{"band", "the band of the request, with an admission"},
	{"wait", "how long the agent held the request, in milliseconds; set with band"},
	{"input_tokens", "the estimated length of the prompt, in tokens"},
	{"cost", "what the request is charged, in tokens"},
	{"limit_tokens", "the budget that is nearest to its end, in tokens"},
	{"remaining_tokens", "what is left of it"},
	{"reset_tokens", "when it is whole again, in seconds"},
	{"models", "the list of all models, for GET /v1/models with list_models"},
	{"status", "the status of a refusal, such as 404, 429 or 503"},
	{"reason", "the text of a refusal, for the client"},
	{"retry_after", "seconds for the Retry-After of a refusal"},
}
