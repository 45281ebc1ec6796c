// Package queue orders the requests that wait for the replicas of a pool:
// bands by urgency, tenants by fair shares, and each tenant's requests by a
// configurable order. It keeps the limits, the times at which a request is
// refused, and the counts. For requests that wait in the proxy's own queues it
// computes their class and offset there.
//
// The package knows neither requests nor replicas. It holds values of its
// owner's type, and the owner asks which value is next, decides whether a
// replica can take it, and removes it. Nothing in this package is safe for
// concurrent use: everything lives under the lock of the pool that owns it.
package queue
