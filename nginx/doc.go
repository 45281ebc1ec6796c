// Package nginx speaks to nginx: it answers questions that come as whole HTTP
// requests with a redirect to the upstream of a replica, turns access-log lines
// into outcomes, and tells what a configuration of the user's own misses.
package nginx
