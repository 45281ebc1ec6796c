package demo

import "testing"

// The workload has one long prompt in ten, in the batch band.
func TestPrioritiesWorkload(t *testing.T) {
	calls, err := newPriorities(1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	batch := 0
	for i, c := range calls {
		if long := len(c.body) > 20_000; long != (c.band == batchBand) || i > 0 && c.at < calls[i-1].at {
			t.Fatalf("request %d: %d bytes in band %s at %v", i, len(c.body), c.band, c.at)
		} else if long {
			batch++
		}
	}
	if batch < 70 || batch > 130 {
		t.Errorf("%d of 1000 are batch", batch)
	}
}
