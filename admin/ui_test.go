package admin

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"pointsman/admin/page"
)

// Browsers get the status page, with a policy that allows nothing inline, and what it
// loads.
func TestStatusPage(t *testing.T) {
	b := newBench(t)
	b.submit("m", 4)
	now := time.Now()
	b.server.Sample(now)
	b.server.Config = func() ([]byte, error) { return []byte("pools: {}\n"), nil }
	b.server.Refusals = func() []string { return []string{"set server chat/r9"} }
	b.server.RuntimeAPI = func() string { return "the runtime API is silent" }
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://admin/")
	req.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	if err := b.client.DoTimeout(req, resp, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	text := string(resp.Body())
	for _, want := range []string{"<!doctype html>", "least_work", "set server chat/r9", "the runtime API is silent", "v1.2.3", `data-key="chat-`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for name, want := range map[string]string{"Content-Security-Policy": page.Policy, "X-Content-Type-Options": "nosniff", "Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store"} {
		if got := string(resp.Header.Peek(name)); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if strings.Contains(text, "secret words") {
		t.Error("the page shows a prompt")
	}
	loads := regexp.MustCompile(`"(/assets/[^"]+)"`).FindAllStringSubmatch(text, -1)
	for _, m := range loads {
		b.get(m[1])
	}
	if len(loads) != 3 {
		t.Errorf("the page loads %v", loads)
	}
	if text := b.get("/?live=1"); strings.Contains(text, "<html") || !strings.Contains(text, `id="pools"`) {
		t.Errorf("the live part is\n%s", text)
	}
	if text := b.get("/load.png?pool=chat"); !strings.HasPrefix(text, "\x89PNG") {
		t.Error("no picture")
	}
	if text := b.get("/config"); text != "pools: {}\n" {
		t.Error(text)
	}
	records := b.intake.Decider().Pools()[0].Records()
	seq := records[len(records)-1].Seq // the others were held
	if text := b.get("/decision?live=1&pool=chat&seq=" + strconv.FormatUint(seq, 10)); !strings.Contains(text, "of pool chat") || !strings.Contains(text, ">cost<") {
		t.Errorf("a decision is\n%s", text)
	}
	for body, want := range map[string]string{request("m", "x"): "Decision", request("nobody", "x"): "Refused with 404", "{": "Decision"} {
		if status, text := b.do("POST", "/debug/explain?html=1&path=/v1/chat/completions", body, "Content-Type: application/json"); status != fasthttp.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s is explained with %d as\n%s", body, status, text)
		}
	}
	for uri, want := range map[string]int{
		"/assets/page.html": 404, "/assets/../assets/app.js": 200, "/assets/": 404, "/load.png?pool=none": 404, "/decision?pool=chat&seq=x": 400, "/decision?pool=none&seq=1": 404,
		"/decision?pool=chat&seq=99999": 404,
	} {
		if status, _ := b.do("GET", uri, ""); status != want {
			t.Errorf("%s: %d", uri, status)
		}
	}
	for _, uri := range []string{"/", "/?live=1", "/assets/app.js", "/config", "/decision?pool=chat&seq=1", "/load.png?pool=chat"} {
		if status, _ := b.do("GET", uri, "", "Host: evil.example.com"); status != fasthttp.StatusMisdirectedRequest {
			t.Errorf("%s under another's name: %d", uri, status)
		}
		if status, _ := b.do("POST", uri, ""); status != fasthttp.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", uri, status)
		}
	}
}
