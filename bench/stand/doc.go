// Package stand is shared by the benchmarks of whole proxies: processes and their processor
// time, replicas that answer at once, requests, and medians.
package stand
