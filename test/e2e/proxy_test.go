package e2e

import (
	"net/http"
	"testing"

	"pointsman/test/proxies"
)

// release is a release of a proxy. Every test of the suite runs on each.
type release struct {
	name    string // for instance "haproxy-3.2"
	version string // for instance "3.2"
	newest  bool   // of its proxy
	bin     proxies.Binary
	can     abilities
	lay     func(*site) proxy
}

// abilities name what one proxy can do and another cannot. A test asserts as
// much of each as its abilities allow.
type abilities struct {
	// noticesLeaving and noticesLeaving2: it reports at once that a client
	// over HTTP/1 or HTTP/2 has left while its request is held. Others notice when
	// the agent's answer comes.
	noticesLeaving, noticesLeaving2 bool
	// losesHeldCheaply: a hold that is cut short by the agent's death costs
	// nothing. Otherwise the time that a question may take is also what a dead
	// agent costs.
	losesHeldCheaply bool
	// queues: it holds requests in queues of its own, in the agent's order.
	queues bool
	// checks: it checks the replicas' health by itself and the agent follows it.
	checks bool
	// runtime: its servers are added, weighted, drained and removed at run time.
	runtime bool
	// wholeBody: the agent sees all of a body, however long.
	wholeBody bool
	// readsModel: without an agent it sends each model to its own pool.
	readsModel bool
	// knowsWhoBroke: its log always shows whether the client or the replica broke
	// off a stream.
	knowsWhoBroke bool
	// answersBroken: whenever a replica dies before its answer, the client gets a
	// response. Otherwise it may find its connection closed.
	answersBroken bool
	// explainsBroken: the client of a replica that died before its answer gets an
	// error in OpenAI's form.
	explainsBroken bool
	// triesOthers: it never sends a request a second time to a replica that has
	// refused it, as long as there are others.
	triesOthers bool
	// retriesSent: it can be made to send a request again that a replica may have
	// begun.
	retriesSent bool
}

// proxy is the proxy of a site. Its methods are for the test's own goroutine.
type proxy interface {
	// listen is its entry in `listen` of the agent's configuration, and section is
	// the section of its own.
	listen() string
	section() string
	// render runs `pointsman render` for it and returns the files that are written
	// and what is printed.
	render(args ...string) (files map[string]string, printed string)
	// start starts it with the complete configuration that is rendered, and with a
	// second address for HTTP/2.
	start()
	// awaitAgent waits until it asks the agent.
	awaitAgent()
	// reload has it read its configuration anew, without losing requests.
	reload()
	// crash ends what serves requests, in mid-request, and has it serve again.
	crash()
	// forms are the ways to attach to one that a user has already, and attach
	// starts such a one, which serves a web site besides.
	forms() []string
	attach(form, web string, engines attached)
	// questions counts what the agent was asked, of its metrics.
	questions(metrics map[string]float64) int
	// troubles are the metrics that stay 0 unless something is wrong.
	troubles() []string
	// forged are headers that mean something to it or to the agent, and that
	// neither believes when a client sends them.
	forged() map[string]string
	// noReplica is the status of a request that no replica took.
	noReplica() int
	// ask asks the agent for a decision in its own protocol.
	ask(id string, body []byte) (question, error)
	// garbage sends garbage to each address at which the agent listens to it.
	garbage(rounds int)
	// countsGarbage are the metrics that count it.
	countsGarbage() []string
}

// attached are the engines behind a proxy that a user has: two of the model, one
// of another.
type attached struct{ l1, l2, q1 *engine }

// question is one that was sent to the agent and may be held.
type question interface {
	// answered waits for the decision.
	answered() error
	close()
}

// releases lists what is installed: every HAProxy and every nginx.
func releases(t *testing.T) []release {
	return append(haproxies(t), nginxes(t)...)
}

// newest are the newest HAProxy and the newest nginx, for tests that do not
// depend on a version.
func newest(t *testing.T) (list []release) {
	for _, r := range releases(t) {
		if r.newest {
			list = append(list, r)
		}
	}
	return list
}

// onEach runs f as a subtest for each release.
func onEach(t *testing.T, list []release, f func(t *testing.T, r release)) {
	for _, r := range list {
		t.Run(r.name, func(t *testing.T) { f(t, r) })
	}
}

// everyProxy runs f as a subtest for each release of each proxy.
func everyProxy(t *testing.T, f func(t *testing.T, r release)) { onEach(t, releases(t), f) }

// that keeps the releases that have an ability.
func that(list []release, has func(abilities) bool) (kept []release) {
	for _, r := range list {
		if has(r.can) {
			kept = append(kept, r)
		}
	}
	return kept
}

// website is what a user serves besides an LLM.
var website = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Write([]byte("the site: " + r.Method + " " + r.URL.Path))
})
