package decider

// assignSlots makes list the members in place of old and gives each a slot: a
// small number, kept as long as the replica is a member, by which what is kept
// beside it is found.
func assignSlots(list, old []*Replica) {
	was := map[*Replica]bool{}
	for _, r := range old {
		was[r] = true
	}
	taken := map[int]bool{}
	for _, r := range list {
		if was[r] {
			taken[r.slot] = true
		}
	}
	next := 0
	for _, r := range list {
		if was[r] {
			continue
		}
		for taken[next] {
			next++
		}
		r.slot = next
		taken[next] = true
	}
}
