package nginx

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"go.uber.org/goleak"

	"pointsman/decider"
	"pointsman/decider/policy"
	"pointsman/intake"
	"pointsman/test/inject"
)

var rules inject.Rules

func TestMain(m *testing.M) {
	// fasthttp's cleaners sleep on for a while, its clock for ever.
	const fasthttp = "github.com/valyala/fasthttp."
	goleak.VerifyTestMain(inject.Tested{M: m, Rules: &rules}, goleak.IgnoreAnyFunction(fasthttp+"updateServerDate.func1"), goleak.IgnoreAnyFunction(fasthttp+"(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction(fasthttp+"(*HostClient).connsCleaner"), goleak.IgnoreAnyFunction(fasthttp+"(*Client).mCleaner"))
}

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

// newIntake has the pools llama, of three replicas chosen in turn, and code,
// of one that it has found and one at an address that llama has too.
func newIntake() *intake.Intake {
	epoch := time.Now()
	seed := uint64(0)
	in := intake.New(decider.New(func() time.Duration { return time.Since(epoch) }, func() uint64 { seed++; return seed }))
	in.Apply(intake.Config{Pools: []decider.PoolConfig{
		{Name: "llama", Models: []string{"my-llama"}, Policy: &policy.RoundRobin{}, PolicyName: "round_robin", Replicas: []decider.ReplicaConfig{
			{Name: "r1", Address: "10.0.0.1:8000"}, {Name: "r2", Address: "10.0.0.2:8000"}, {Name: "r3", Address: "10.0.0.3:8000"},
		}},
		{Name: "code", Models: []string{"coder"}, Policy: &policy.RoundRobin{}, PolicyName: "round_robin", Replicas: []decider.ReplicaConfig{
			{Name: "10.0.1.1:8000", Address: "10.0.1.1:8000"}, {Name: "shared", Address: "10.0.0.1:8000"},
		}},
		{Name: "bare", Models: []string{"none"}, Policy: &policy.RoundRobin{}, PolicyName: "round_robin", Discover: true},
	}})
	return in
}

func newDecider() *decider.Decider { return newIntake().Decider() }

// status is the state of a pool by now.
func status(d *decider.Decider, pool string) decider.PoolStatus { return d.Pool(pool).Status() }

// replica is the state of one replica.
func replica(d *decider.Decider, pool, name string) decider.ReplicaStatus {
	for _, r := range status(d, pool).Replicas {
		if r.Name == name {
			return r
		}
	}
	return decider.ReplicaStatus{}
}

func newSet() *metrics.Set { return metrics.NewSet() }
