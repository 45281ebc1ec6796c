package intake

import (
	"fmt"
	"time"

	"pointsman/decider"
)

// newIntake is an intake whose clock stands still.
func newIntake() *Intake {
	return New(decider.New(func() time.Duration { return 0 }, seeds()))
}

// seeds gives the seeds 1, 2, 3 …
func seeds() func() uint64 {
	n := uint64(0)
	return func() uint64 { n++; return n }
}

func replicas(n int) []decider.ReplicaConfig {
	list := make([]decider.ReplicaConfig, n)
	for i := range list {
		list[i] = decider.ReplicaConfig{Name: fmt.Sprintf("r%d", i), Address: fmt.Sprintf("127.0.0.1:%d", 9000+i)}
	}
	return list
}
