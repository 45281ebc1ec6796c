package main

import (
	"reflect"
	"testing"
)

// TestSeed: a seed makes one trace, the same each time, and another one another.
func TestSeed(t *testing.T) {
	for name, k := range kinds {
		one := newMaker(k, 1).trace()
		if !reflect.DeepEqual(one, newMaker(k, 1).trace()) {
			t.Errorf("%s: seed 1 makes two traces", name)
		}
		if reflect.DeepEqual(one, newMaker(k, 2).trace()) {
			t.Errorf("%s: seeds 1 and 2 make the same trace", name)
		}
	}
}
