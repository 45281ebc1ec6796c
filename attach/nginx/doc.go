// Package nginx attaches pointsman to an nginx that is already running, and detaches it: it
// finds the locations that lead to LLM engines and their pools, renders our own files, and
// works out the edits of the user's files.
package nginx
