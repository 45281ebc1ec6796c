package decider

import "slices"

// maxListed bounds the adapters of one replica that are remembered.
const maxListed = 4096

// Adapters reports which LoRA adapters the engine of that replica of p lists
// among its models, loaded or not. They may be asked for as models, and such
// requests go to replicas that list them. A name that is not in the pool is
// ignored.
func (d *Decider) Adapters(p *Pool, replica string, names []string) {
	if p.Engine(replica).listAdapters(names) && d.AdaptersChanged != nil {
		d.AdaptersChanged()
	}
}

// listAdapters returns whether anything has changed.
func (e Engine) listAdapters(names []string) bool {
	p, r := e.lock()
	defer p.mu.Unlock()
	if r == nil {
		return false
	}
	names = slices.Clone(names[:min(len(names), maxListed)])
	slices.Sort(names)
	if r.lists != nil && slices.Equal(names, r.lists) {
		return false
	}
	r.lists = names
	if r.lists == nil {
		r.lists = []string{} // not nil, which means that it has listed nothing yet
	}
	p.anyLists = true
	return true
}

// ListedAdapters are the adapters that the engines of the pool list, replica by
// replica. A name may occur more than once.
func (p *Pool) ListedAdapters() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.replicas {
		names = append(names, r.lists...)
	}
	return names
}

// Listing returns the replicas whose engines list the adapter: others cannot answer
// questions about it. It returns all replicas if none lists the adapter, or if adapter is
// empty.
func Listing(p *Pool, adapter string) (list []Member) {
	if adapter == "" {
		return p.Members()
	}
	p.mu.Lock()
	for _, r := range p.replicas {
		if listsName(r.lists, adapter) {
			list = append(list, Member{r.name, r.address})
		}
	}
	p.mu.Unlock()
	if list == nil {
		return p.Members()
	}
	return list
}

func listsName(sorted []string, name string) bool {
	_, ok := slices.BinarySearch(sorted, name)
	return ok
}

// AdaptersLoaded reports which LoRA adapters the engine has in use now, and how
// many it can have loaded at a time; 0 = not reported.
func (e Engine) AdaptersLoaded(names []string, slots int) {
	p, r := e.lock()
	defer p.mu.Unlock()
	if r == nil {
		return
	}
	if slots > 0 {
		r.slotsReported = min(slots, maxListed)
		r.adapters.slots = r.slotsReported
	}
	for _, name := range names[:min(len(names), r.adapters.slots)] {
		r.adapters.inUse(name)
	}
	r.adapters.shrink()
}

// inUse notes that the engine has the adapter loaded.
func (a *adapters) inUse(name string) {
	if x := a.find(name); x != nil {
		x.loaded = true
		return
	}
	a.list = append(a.list, adapter{name: name, loaded: true})
}
