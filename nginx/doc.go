// Package nginx speaks to nginx: it answers questions that come as whole HTTP requests
// with a redirect to the upstream of a replica, turns access-log lines into outcomes,
// and reports what is missing in a user's own configuration.
package nginx
