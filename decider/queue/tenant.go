package queue

// flow is the work that a tenant has had in a band. Tenants take turns by their
// start tags: the work that each has had, divided by its weight, on a scale on
// which a tenant that was away starts where the others are. This is start-time
// fair queueing.
type flow struct {
	id     uint64
	class  int
	weight float64
	start  float64
}

func (s *Settings) newFlow(tenant uint64) flow {
	class := s.classes[tenant]
	return flow{id: tenant, class: class, weight: s.weights[class]}
}

// Tenant is the items of one tenant in a band, in their order.
type Tenant[T any] struct {
	flow
	items ordered[*Item[T]]
}

// Len is the number of its items.
func (t *Tenant[T]) Len() int { return t.items.len() }

// Item is its item at index i.
func (t *Tenant[T]) Item(i int) *Item[T] { return t.items.at(i) }

// tenantsKept bounds how many tenants without an item are remembered per band.
const tenantsKept = 1024
