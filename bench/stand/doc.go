// Package stand holds what the benchmarks of whole proxies share: processes and
// the processor time that they take, replicas that answer at once, requests, and
// medians.
package stand
