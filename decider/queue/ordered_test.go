package queue

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestOrderedIsASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o ordered[int]
		var model []entry[int]
		for i := range rapid.IntRange(0, 300).Draw(t, "steps") {
			if len(model) == 0 || rapid.IntRange(0, 4).Draw(t, "op") < 2 {
				e := entry[int]{float64(rapid.IntRange(0, 9).Draw(t, "key")), uint64(i), i}
				o.insert(e.key, e.seq, e.value)
				model = append(model, e)
			} else {
				k := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				if rapid.Bool().Draw(t, "first") {
					k = 0
				}
				o.remove(model[k].key, model[k].seq)
				o.remove(model[k].key, model[k].seq) // not there: nothing happens
				model = slices.Delete(model, k, k+1)
			}
			slices.SortFunc(model, func(a, b entry[int]) int {
				if a.key != b.key {
					return int(a.key - b.key)
				}
				return int(a.seq) - int(b.seq)
			})
			if !slices.Equal(o.list, model) {
				t.Fatalf("%v, want %v", o.list, model)
			}
		}
	})
}

// A list that is filled and emptied again and again keeps its memory.
func TestOrderedDoesNotAllocate(t *testing.T) {
	var o ordered[int]
	n := uint64(0)
	for size := range 4 {
		step := func() {
			for range size + 1 {
				n++
				o.insert(float64(n), n, 0)
			}
			for o.len() > 0 {
				o.remove(o.list[0].key, o.list[0].seq)
			}
		}
		step()
		if a := testing.AllocsPerRun(100, step); a != 0 {
			t.Errorf("%v allocations for %d values", a, size+1)
		}
	}
}
