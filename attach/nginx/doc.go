// Package nginx works out how an nginx that runs already is attached to
// pointsman and detached from it: which locations lead to LLM engines, which
// pools these are, what our own files say, and the edits of the user's.
package nginx
