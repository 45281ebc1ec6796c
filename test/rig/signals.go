package rig

import (
	"bytes"
	"encoding/json"
	"os/exec"
)

// Signal is what tests read of one replica's signals in the output of `pointsman
// status --signals --json`.
type Signal struct {
	Pool    string  `json:"pool"`
	Replica string  `json:"replica"`
	Error   string  `json:"error"`
	Engine  string  `json:"engine"`
	Age     float64 `json:"age_s"`
	Running int     `json:"running"`
	Cache   int     `json:"cache"` // tokens
	Blocks  *struct {
		Online  int    `json:"online"`
		Blocks  int    `json:"blocks"`
		Batches uint64 `json:"batches"`
		Gaps    uint64 `json:"gaps"`
		Orphans int    `json:"orphans"`
		Tokens  int    `json:"block_tokens"`
	} `json:"blocks"`
}

// Run runs pointsman with args against the agent and returns what it prints.
func (a *Agent) Run(stdin []byte, args ...string) []byte {
	a.t.Helper()
	cmd := exec.Command(Binary, append(args, "--admin", a.Admin)...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		a.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}

// Signals returns what the agent knows from its engines.
func (a *Agent) Signals() (list []Signal) {
	a.t.Helper()
	out := a.Run(nil, "status", "--signals", "--json")
	if err := json.Unmarshal(out, &list); err != nil {
		a.t.Fatalf("status --signals: %v\n%s", err, out)
	}
	return list
}

// Ages explains body and returns the age of each replica's signals in seconds, or
// -1 for none.
func (a *Agent) Ages(body []byte) map[string]float64 {
	a.t.Helper()
	var x struct {
		Server     string `json:"server"`
		Candidates []struct {
			Replica string   `json:"replica"`
			Age     *float64 `json:"signal_age_s"`
		} `json:"candidates"`
	}
	out := a.Run(body, "explain", "--json")
	if err := json.Unmarshal(out, &x); err != nil || x.Server == "" {
		a.t.Fatalf("explain: %v\n%s", err, out)
	}
	ages := map[string]float64{}
	for _, c := range x.Candidates {
		ages[c.Replica] = -1
		if c.Age != nil {
			ages[c.Replica] = *c.Age
		}
	}
	return ages
}
