package decider

// Engine passes reports of a replica's engine to its pool: its metrics and KV-cache events.
// Reports of a replica that is not in the pool are ignored. The methods are safe for
// concurrent use and take the pool's lock.
type Engine struct {
	pool    *Pool
	replica string
}

// Engine returns the engine of the replica of that name.
func (p *Pool) Engine(replica string) Engine { return Engine{p, replica} }

// lock locks the pool and returns it and the replica, nil if the pool has none
// of that name. The caller unlocks the pool.
func (e Engine) lock() (*Pool, *Replica) {
	e.pool.mu.Lock()
	return e.pool, e.pool.byName[e.replica]
}
