package decider

import "slices"

// adapters are the LoRA adapters that a replica is believed to have loaded: as
// engines do, it keeps the ones in use and, up to its slots, the last others.
type adapters struct {
	slots int
	list  []adapter // the least recently asked for first
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

// take counts a request for the adapter, which becomes the last asked for.
func (a *adapters) take(name string) {
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

// drop ends what take began. An adapter that no request got as far as to use
// is not there.
func (a *adapters) drop(name string) {
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

// restart forgets what was loaded before the engine was started anew.
func (a *adapters) restart() {
	a.list = slices.DeleteFunc(a.list, func(x adapter) bool { return x.inFlight == 0 })
	for i := range a.list {
		a.list[i].loaded = false
	}
}

// HasLoRA reports whether the replica is believed to have the adapter of that
// name, or to be loading it. Every replica has "", the model itself.
func (r *Replica) HasLoRA(name string) bool { return name == "" || r.adapters.find(name) != nil }

// LoRAState says whether a replica is believed to have an adapter.
type LoRAState uint8

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
