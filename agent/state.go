package agent

import (
	"context"
	crand "crypto/rand"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"pointsman/state"
)

// openState returns the keeper of the agent's memory in dir, or in the directory that
// systemd made for it; nil if there is neither.
func openState(dir string, log *slog.Logger) *state.Keeper {
	if dir == "" {
		dir, _, _ = strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")
	}
	if dir == "" || dir == "off" {
		return nil
	}
	return state.Open(dir, log)
}

// secret returns the secret that keys the hashes of prompts: that of the earlier life, so
// that its block keys stay valid, or a new one.
func secret(kept *state.Keeper) []byte {
	if kept != nil && len(kept.Secret()) >= secretBytes {
		return kept.Secret()
	}
	b := make([]byte, secretBytes)
	_, _ = crand.Read(b) // it never fails
	return b
}

const secretBytes = 16

// restore gives the pools the memory of the earlier life, before any socket
// answers, as far as their replicas are known by then.
func (a *Agent) restore(set *metrics.Set) {
	if a.state == nil {
		return
	}
	kept := a.decider.Secret
	if a.cluster != nil {
		kept = nil // it is that of the cluster
	}
	a.state.Keep(a.decider, kept)
	a.state.KeepBlocks(a.engines)
	a.state.Export(set)
	a.admin.State, a.admin.Restored = a.state.Status, a.state.IsReady
	a.state.Restore()
}

// ready is closed when the agent has the memory of its earlier life and knows what the
// other agents know, or has waited long enough.
func (a *Agent) ready(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		select {
		case <-a.cluster.ready():
		case <-ctx.Done():
			return
		}
		for a.state != nil && !a.state.IsReady() && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		close(done)
	}()
	return done
}
