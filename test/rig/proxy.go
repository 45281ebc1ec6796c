package rig

import (
	"hash/fnv"
	"net/http"
	"testing"

	"pointsman/test/proxies"
)

// Release is a release of a proxy. Every test of the suite runs on each.
type Release struct {
	Name    string // for instance "haproxy-3.2"
	Version string // for instance "3.2"
	Newest  bool   // of its proxy
	Bin     proxies.Binary
	Can     Abilities
	Lay     func(*Site) Proxy
}

// Abilities name what one proxy can do and another cannot. A test asserts as
// much of each as its abilities allow.
type Abilities struct {
	// NoticesLeaving and NoticesLeaving2: it reports at once that a client
	// over HTTP/1 or HTTP/2 has left while its request is held. Others notice when
	// the agent's answer comes.
	NoticesLeaving, NoticesLeaving2 bool
	// LosesHeldCheaply: a hold that is cut short by the agent's death costs
	// nothing. Otherwise the time that a question may take is also what a dead
	// agent costs.
	LosesHeldCheaply bool
	// Queues: it holds requests in queues of its own, in the agent's order.
	Queues bool
	// Checks: it checks the replicas' health by itself and the agent follows it.
	Checks bool
	// Runtime: its servers are added, weighted, drained and removed at run time.
	Runtime bool
	// WholeBody: the agent sees all of a body, however long.
	WholeBody bool
	// ReadsModel: without an agent it sends each model to its own pool.
	ReadsModel bool
	// KnowsWhoBroke: its log always shows whether the client or the replica broke
	// off a stream.
	KnowsWhoBroke bool
	// AnswersBroken: whenever a replica dies before its answer, the client gets a
	// response. Otherwise it may find its connection closed.
	AnswersBroken bool
	// ExplainsBroken: the client of a replica that died before its answer gets an
	// error in OpenAI's form.
	ExplainsBroken bool
	// TriesOthers: it never sends a request a second time to a replica that has
	// refused it, as long as there are others.
	TriesOthers bool
	// NewConnections: unless it may send a request again, it opens a new connection to a
	// replica for each. Otherwise a request that meets the end of an idle one gets a 502.
	NewConnections bool
}

// Proxy is the proxy of a site. Its methods are for the test's own goroutine.
type Proxy interface {
	// Listen is its entry in `listen` of the agent's configuration, and Section is
	// the section of its own.
	Listen() string
	Section() string
	// Render runs `pointsman render` for it and returns the files that are written
	// and what is printed.
	Render(args ...string) (files map[string]string, printed string)
	// Start starts it with the complete configuration that is rendered, and with a
	// second address for HTTP/2.
	Start()
	// AwaitAgent waits until it asks the agent.
	AwaitAgent()
	// Reload has it read its configuration anew, without losing requests.
	Reload()
	// Crash ends what serves requests, in mid-request, and has it serve again.
	Crash()
	// Forms are the ways to attach to one that a user has already, and attach
	// starts such a one, which serves a web site besides.
	Forms() []string
	Attach(form, web string, engines Attached)
	// Serving are the ids of its processes that serve requests.
	Serving() []string
	// Questions counts what the agent was asked, of its metrics.
	Questions(metrics map[string]float64) int
	// Troubles are the metrics that stay 0 unless something is wrong.
	Troubles() []string
	// Forged are headers that mean something to it or to the agent, and that
	// neither believes when a client sends them.
	Forged() map[string]string
	// NoReplica is the status of a request that no replica took.
	NoReplica() int
	// Ask asks the agent for a decision in its own protocol.
	Ask(id string, body []byte) (Question, error)
	// Peer connects to the agent as the proxy does, for many questions. Each peer has a
	// number of its own.
	Peer(number int) (Peer, error)
	// Garbage sends garbage to each address at which the agent listens to it.
	Garbage(rounds int)
	// CountsGarbage are the metrics that count it.
	CountsGarbage() []string
}

// Attached are the engines behind a proxy that a user has: two of the model, one
// of another.
type Attached struct{ L1, L2, Q1 *Engine }

// Question is one that was sent to the agent and may be held.
type Question interface {
	// Answered waits for the decision.
	Answered() error
	Close()
}

// Releases lists what is installed: every HAProxy and every nginx.
func Releases(t *testing.T) []Release {
	return append(HAProxies(t), Nginxes(t)...)
}

// Newest are the newest HAProxy and the newest nginx, for tests that do not
// depend on a version.
func Newest(t *testing.T) (list []Release) {
	for _, r := range Releases(t) {
		if r.Newest {
			list = append(list, r)
		}
	}
	return list
}

// Rotated are one HAProxy and one nginx, others for other tests, so that together they
// run on all; in a soak each test runs on all.
func Rotated(t *testing.T) (list []Release) {
	if Soak {
		return Releases(t)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name())) // it never fails
	for _, all := range [][]Release{HAProxies(t), Nginxes(t)} {
		if n := uint32(len(all)); n > 0 {
			list = append(list, all[h.Sum32()%n])
		}
	}
	return list
}

// OnEach runs f as a subtest for each release.
func OnEach(t *testing.T, list []Release, f func(t *testing.T, r Release)) {
	for _, r := range list {
		t.Run(r.Name, func(t *testing.T) { f(t, r) })
	}
}

// EveryProxy runs f as a subtest for each release of each proxy.
func EveryProxy(t *testing.T, f func(t *testing.T, r Release)) { OnEach(t, Releases(t), f) }

// That keeps the releases that have an ability.
func That(list []Release, has func(Abilities) bool) (kept []Release) {
	for _, r := range list {
		if has(r.Can) {
			kept = append(kept, r)
		}
	}
	return kept
}

// website is what a user serves besides an LLM.
var website = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Write([]byte("the site: " + r.Method + " " + r.URL.Path))
})
