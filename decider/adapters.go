package decider

import "slices"

// adapters are the LoRA adapters that a replica is believed to have loaded. Like an engine,
// it keeps the adapters in use and, up to its slots, the most recently used ones. It lives
// under the pool's lock.
type adapters struct {
	slots int
	list  []adapter // least recently requested first
}

type adapter struct {
	name     string
	inFlight int
	loaded   bool // a request for it has had its first byte
}

// find returns the adapter of that name, or nil.
func (a *adapters) find(name string) *adapter {
	for i := range a.list {
		if a.list[i].name == name {
			return &a.list[i]
		}
	}
	return nil
}

// reserve counts a request for the adapter, which becomes the most recent one.
func (a *adapters) reserve(name string) {
	x := adapter{name: name}
	for i := range a.list {
		if a.list[i].name == name {
			x = a.list[i]
			a.list = append(a.list[:i], a.list[i+1:]...)
			break
		}
	}
	x.inFlight++
	a.list = append(a.list, x)
	a.shrink()
}

// started notes that a request for the adapter has had its first byte.
func (a *adapters) started(name string) {
	if x := a.find(name); x != nil {
		x.loaded = true
	}
}

// release ends what reserve began. An adapter whose only request never started
// was not loaded.
func (a *adapters) release(name string) {
	for i := range a.list {
		x := &a.list[i]
		if x.name != name {
			continue
		}
		x.inFlight--
		if x.inFlight == 0 && !x.loaded {
			a.list = append(a.list[:i], a.list[i+1:]...)
		}
		break
	}
	a.shrink()
}

// shrink forgets idle adapters while there are more than slots.
func (a *adapters) shrink() {
	for i := 0; i < len(a.list) && len(a.list) > a.slots; {
		if a.list[i].inFlight > 0 {
			i++
			continue
		}
		a.list = append(a.list[:i], a.list[i+1:]...)
	}
}

// restarted forgets all adapters: the engine has restarted.
func (a *adapters) restarted() {
	a.list = slices.DeleteFunc(a.list, func(x adapter) bool { return x.inFlight == 0 })
	for i := range a.list {
		a.list[i].loaded = false
	}
}

// HasLoRA reports whether the replica is believed to have the adapter of that
// name loaded or to be loading it. Every replica has "", the model itself.
func (r *Replica) HasLoRA(name string) bool { return name == "" || r.adapters.find(name) != nil }

// LoRAState says whether a replica is believed to have an adapter.
type LoRAState uint8

// The states of an adapter.
const (
	LoRAAbsent  LoRAState = iota
	LoRALoading           // requests for it are on their way
	LoRALoaded            // a request for it has had its first byte
)

// LoRA is the state of the adapter of that name on the replica.
func (r *Replica) LoRA(name string) LoRAState {
	switch x := r.adapters.find(name); {
	case x == nil:
		return LoRAAbsent
	case x.loaded:
		return LoRALoaded
	}
	return LoRALoading
}

// LoRASlots is how many adapters the replica's engine keeps loaded, as reported
// or configured.
func (r *Replica) LoRASlots() int { return r.adapters.slots }

// LoRAs is the number of adapters that the replica is believed to have.
func (r *Replica) LoRAs() int { return len(r.adapters.list) }
