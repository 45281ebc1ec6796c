package page

import (
	"bytes"
	"fmt"
	"image/png"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"pointsman/admin/history"
	"pointsman/decider"
	"pointsman/decider/budget"
	"pointsman/decider/queue"
	"pointsman/link"
)

// input is a page with n replicas.
func input(n int) *Input {
	p := decider.PoolStatus{
		Name: "llama", Policy: "least_work", Models: []string{"m"}, Outcomes: map[string]uint64{}, HitRatio: &decider.HitRatio{Expected: .5, Achievable: .75},
		Admission: &decider.AdmissionStatus{Hold: true, Saturated: 1, Bands: []queue.BandStatus{{Name: "chat", Queued: 3, Counts: map[string]queue.CountStatus{"other": {Held: 12345, Refused: map[string]uint64{"a": 2, "b": 3}}}}}},
	}
	for i := range n {
		p.Replicas = append(p.Replicas, decider.ReplicaStatus{
			Name: "r" + strconv.Itoa(i+1), Address: "10.0.0.1:8000", State: "up", Seen: true, InFlight: i % 7, KVUsage: float64(i%10) / 10, SignalAge: .5,
			PrefillSpeed: 12345, QueryTokens: 1000, HitTokens: 250,
		})
	}
	in := &Input{
		Version: "v1.2.3", Now: time.Unix(1e9, 0), Started: time.Unix(1e9-90, 0), Pools: []decider.PoolStatus{p}, History: &history.History{},
		Proxies: []link.Status{{Proxy: "haproxy", Version: "3.2.1", Connected: true, Questions: 12, Problem: "the feed is silent", Bypassed: map[string]uint64{"fe": 7}}},
		Records: []decider.Record{{Age: 1, Seq: 41, ID: "0a1b2c3d", Pool: "llama", Server: "r1", Why: "least_work", Candidates: n}, {Age: .5, Seq: 42, ID: "ffffffff", Pool: "llama", Why: "none"}},
	}
	for k := range history.Slots {
		for i := range in.Pools[0].Replicas {
			r := &in.Pools[0].Replicas[i]
			r.QueryTokens, r.HitTokens, r.InFlight = r.QueryTokens+100, r.HitTokens+60, (i*k)%11
		}
		in.History.Add(in.Now.Add(time.Duration(k-history.Slots)*history.Step), func() []decider.PoolStatus { return in.Pools })
	}
	return in
}

func render(t testing.TB, in *Input, query string) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, in, ParseQuery(query)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func contains(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("no %s in\n%s", w, text)
		}
	}
}

func TestPage(t *testing.T) {
	in := input(3)
	r := in.Pools[0].Replicas
	r[0].State, r[0].EjectedFor, r[0].Role = "ejected", 12, "prefill"
	r[1].State, r[1].Seen = "up", false
	r[2].State, r[2].KVUsage, r[2].SignalAge, r[2].Limit, r[2].InFlight = "down", -1, -1, 8, 3
	in.Refusals = []string{"set server llama/r9: no such server"}
	in.Draining = true
	in.Pools[0].Legs = &decider.LegCounts{Legs: 3, Local: 9}
	in.Sections = []Section{{ID: "peers", Title: "Peers", Columns: []Cell{{Text: "peer"}, {Text: "state"}, {Text: "lag", Number: true}}, Rows: [][]Cell{{{Text: "10.0.0.6"}, {Text: "follows", State: "up"}, {Text: "3 ms", Number: true}}}, Problems: []string{"10.0.0.7 is silent."}}}
	text := render(t, in, "")
	contains(t, text, "<title>pointsman</title>", "The agent drains", "haproxy: the feed is silent.", "7 requests of frontend fe", "Pool llama: r3 down.", "Pool llama: r1 ejected.",
		"HAProxy refuses set server llama/r9", "10.0.0.7 is silent.", "ejected 12 s", `r1 <span class="role">prefill</span>`, "up, not seen", "3 / 8", `<td class="n opt">never</td>`,
		">12.3k<", "60 %", "50 %", "75 %", "12\u202f345", ">5</td>", `href="/decision?pool=llama&amp;seq=42"`, `<h2 id="peers-title">Peers</h2>`, `<a href="#peers">Peers</a>`, `<span class="s up">follows</span>`, `<td class="n">3 ms</td>`, "up for 90 s", `<dt>prefilled elsewhere</dt><dd>25 %</dd>`)
	if a, b := strings.Index(text, "ffffffff"), strings.Index(text, "0a1b2c3d"); a < 0 || a > b {
		t.Error("the last decision does not come first")
	}
	live := render(t, in, "live=1")
	if strings.Contains(live, "<html") || !strings.Contains(text, live) {
		t.Error("the live part is not a part of the page")
	}
	if strings.Contains(text, `<select name="pool">`) {
		t.Error("a choice between one pool")
	}
	in.Draining, in.Sections, in.RuntimeAPI, r[1].PassedOver = false, nil, "HAProxy's runtime API does not answer", 20
	contains(t, render(t, in, ""), "Pool llama: r2 not used by the proxy", "HAProxy&#39;s runtime API does not answer.")
	in.Pools[0].Replicas = nil
	contains(t, render(t, in, ""), "Pool llama has no replicas", "No replicas.")
	in.Pools, in.Proxies, in.Records = nil, nil, nil
	contains(t, render(t, in, ""), "No proxy is configured", "None yet.")
}

// The page is small, and so it stays with thousands of replicas: they come in pages,
// with a picture of all.
func TestSize(t *testing.T) {
	total := 0
	for _, a := range assets {
		total += len(a.body)
	}
	if n := total + len(render(t, input(64), "")); n > 160_000 {
		t.Errorf("%d bytes with 64 replicas", n)
	}
	in := input(4096)
	text := render(t, in, "live=1&page=2")
	if rows := strings.Count(text, `<tr data-key="r`); rows != rowsOfOne || len(text) > 200_000 {
		t.Errorf("%d rows, %d bytes with 4096 replicas", rows, len(text))
	}
	contains(t, text, "257 to 384 of 4\u202f096", `rel="prev" href="/?page=1"`, `rel="next" href="/?page=3"`, `src="/load.png?pool=llama"`)
	contains(t, render(t, in, "page=99999"), "3\u202f969 to 4\u202f096")
	if text := render(t, in, "q=R409&sort=name&dir=desc"); strings.Count(text, `<tr data-key="r`) != 8 || strings.Index(text, `"r4096"`) > strings.Index(text, `"r409"`) {
		t.Error("the search for r409")
	}
	var b bytes.Buffer
	if err := WriteLoad(&b, &in.Pools[0], in.History.Pool(in.Now, &in.Pools[0])); err != nil {
		t.Fatal(err)
	}
	if img, err := png.Decode(&b); err != nil || img.Bounds().Dx() != history.Slots || img.Bounds().Dy() != 512 {
		t.Errorf("%v, %v", img.Bounds(), err)
	}

	many := input(64)
	for i := range 99 {
		p := many.Pools[0]
		p.Name = "p" + strconv.Itoa(i)
		many.Pools = append(many.Pools, p)
	}
	contains(t, render(t, many, ""), `<select name="pool">`, "<option>p98</option>")
	text = render(t, many, "live=1")
	if rows := strings.Count(text, `<tr data-key="r`); rows != maxRows {
		t.Errorf("%d rows of 100 pools", rows)
	}
	contains(t, text, "36 more pools")
	if text := render(t, many, "live=1&pool=p7"); strings.Count(text, `<tr data-key="r`) != 64 || strings.Contains(text, "pool-p8") {
		t.Error("one pool of 100")
	}
}

// Nothing that is shown can be a script, and the page needs none inline.
func TestNothingInline(t *testing.T) {
	in := input(2)
	evil := `<script>alert(1)</script>" onload='x`
	in.Pools[0].Name, in.Pools[0].Replicas[0].Name, in.Pools[0].Models, in.Records[0].Model = evil, evil, []string{evil}, evil
	text := render(t, in, "q="+evil+"&pool=x%22%3E%3Cb%3E")
	text += render(t, in, "")
	var b bytes.Buffer
	x := decider.Explanation{Model: evil, Candidates: []decider.Candidate{{Replica: evil, Terms: map[string]float64{evil: 1}, Excluded: evil}}, Queue: &decider.Place{Band: evil, Deadline: 2}}
	if err := WriteExplanation(&b, &x); err != nil {
		t.Fatal(err)
	}
	r := decider.Record{Pool: evil, Model: evil, Considered: x.Candidates}
	for _, live := range []bool{true, false} {
		if err := WriteDecision(&b, &r, live); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteRefusal(&b, 404, evil); err != nil {
		t.Fatal(err)
	}
	text += b.String()
	if strings.Contains(text, "<script>") || strings.Contains(text, "<b>") {
		t.Error("a name is a script")
	}
	for _, m := range regexp.MustCompile(`(?s)<[a-z][^>]*>`).FindAllString(text, -1) {
		plain := regexp.MustCompile(`"[^"]*"|'[^']*'`).ReplaceAllString(m, "")
		if regexp.MustCompile(`\s(on[a-z]+|style)=|javascript:`).MatchString(plain) {
			t.Errorf("inline: %s", m)
		}
	}
	if n := strings.Count(text, "<script src="); n != 2 || strings.Contains(text, "<style") || strings.Contains(Policy, "unsafe") {
		t.Errorf("%d scripts", n)
	}
	for _, m := range regexp.MustCompile(`(?:src|href)="(/assets/([a-z.]+)[^"]*|https?:[^"]*)"`).FindAllStringSubmatch(text, -1) {
		if _, _, ok := Asset(m[2]); !ok {
			t.Errorf("%s is not there", m[1])
		}
	}
}

// Each text reaches the contrast of WCAG AA on each ground that it stands on.
func TestContrast(t *testing.T) {
	css, _, _ := Asset("style.css")
	light, dark, ok := strings.Cut(string(css), "@media (prefers-color-scheme: dark)")
	if !ok {
		t.Fatal("no dark colours")
	}
	dark, _, _ = strings.Cut(dark, "* {")
	for name, part := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([a-z]+): #([0-9a-f]{6});`).FindAllStringSubmatch(part, -1) {
			colours[m[1]] = luminance(t, m[2])
		}
		for _, text := range []string{"text", "muted", "link", "up", "warn", "down"} {
			for _, ground := range []string{"ground", "panel", "head"} {
				a, b := colours[text]+.05, colours[ground]+.05
				if c := max(a, b) / min(a, b); c < 4.5 || colours[text] == 0 && name == "dark" {
					t.Errorf("%s: %s on %s has a contrast of %.2f", name, text, ground, c)
				}
			}
		}
		if a, b := colours["text"]+.05, colours["alarm"]+.05; max(a, b)/min(a, b) < 4.5 {
			t.Errorf("%s: the alarm", name)
		}
	}
}

// luminance is the relative luminance of a colour, as WCAG defines it.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	l := 0.0
	for i, weight := range []float64{.2126, .7152, .0722} {
		c := float64(n>>(16-8*i)&0xff) / 255
		if c <= .04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+.055)/1.055, 2.4)
		}
		l += weight * c
	}
	return l
}

func TestDecisionsAndExplanations(t *testing.T) {
	age := .25
	x := decider.Explanation{
		Pool: "llama", Policy: "least_work", Model: "m", Input: 1200, Output: 5, Stream: true, Session: true, Cut: true, Server: "r2", Fallbacks: []string{"r1"}, Why: "least_work",
		Candidates: []decider.Candidate{{Replica: "r3", Excluded: "down", Saturated: "prefill"}, {Replica: "r1", Rank: 2}, {Replica: "r2", Rank: 1, InFlight: 3, SignalAge: &age, Terms: map[string]float64{"cost": 1234.5}}},
		Queue:      &decider.Place{Band: "chat", Class: "other", Ahead: 2, Wait: 1.5},
		Budget:     &budget.Verdict{Limit: "a-key", Window: "day", Tokens: 5000, Remaining: 40, Reset: 61},
	}
	explain := func() string {
		var b bytes.Buffer
		if err := WriteExplanation(&b, &x); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	text := explain()
	contains(t, text, "r2, then r1, then the proxy&#39;s own balancing (least_work)", "about 1\u202f200 prompt tokens, at most 5 output tokens, model m, streamed, with a session, body cut",
		">1234<", "250 ms", "down, prefill", "band chat, tenants other, 2 ahead, expected wait 1.5 s", "40 of 5000 tokens a day left after it (a-key), all of them in 61s")
	if a, b, c := strings.Index(text, ">r2<"), strings.Index(text, ">r1<"), strings.Index(text, ">r3<"); a > b || b > c {
		t.Error("candidates are not in the order of their ranks")
	}
	x.Server, x.Fallbacks, x.Refused = "", nil, 503
	contains(t, explain(), "none, refused with 503")
	x.Refused, x.Queue = 0, &decider.Place{NoReplica: true}
	contains(t, explain(), "none, held until a replica is up")
	x.Queue = nil
	contains(t, explain(), "none, the proxy balances by itself")
	for i := range 200 {
		x.Candidates = append(x.Candidates, decider.Candidate{Replica: "x" + strconv.Itoa(i)})
	}
	contains(t, explain(), "103 more are not shown")

	var b bytes.Buffer
	r := decider.Record{Pool: "llama", ID: "0a1b2c3d", Why: "none", Output: -1}
	if err := WriteDecision(&b, &r, false); err != nil {
		t.Fatal(err)
	}
	contains(t, b.String(), "Decision 0a1b2c3d… of pool llama", "none: the proxy balances by itself (none)", "There were no candidates.", "<html")
	b.Reset()
	if err := WriteDecision(&b, nil, true); err != nil {
		t.Fatal(err)
	}
	contains(t, b.String(), "no longer among the last decisions")
}

func TestFormats(t *testing.T) {
	for got, want := range map[string]string{
		count(1234567): "1\u202f234\u202f567", count(-1234): "-1\u202f234", count(uint64(1e9)): "1G", count(999): "999",
		seconds(-1): "–", seconds(0): "0 s", seconds(.0123): "12 ms", seconds(1.26): "1.3 s", seconds(75): "75 s", seconds(300): "5 min", seconds(7200): "2 h", seconds(1e6): "12 d",
		percent(.999): "100 %", percent(-1): "–", short(999.96): "1.00k", short(12345): "12.3k", short(.04): "0.04", short(5): "5", age(-1): "never",
		figure(1234.56): "1235", figure(.00012346): "0.0001235", figure(9.5e-10): "≈0", figure(-9.5e-5): "≈0", figure(-.5): "-0.5", plural(1, "replica"): "1 replica", plural(2, "replica"): "2 replicas",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestQueries(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                       "/",
		"sort=nonsense&dir=desc&state=x&page=-3": "/",
		"pool=a%20b&q=+r1+&state=problems&sort=kv&dir=desc&page=3": "/?dir=desc&pool=a+b&q=r1&sort=kv&state=problems",
		"q=" + strings.Repeat("x", 1000):                           "/?q=" + strings.Repeat("x", 100),
		"%zz&q=%ff":                                                "/",
	} {
		if got := ParseQuery(raw).URL("", ""); got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
	q := ParseQuery("sort=kv&dir=desc")
	if got := fmt.Sprint(q.sortURL("kv"), q.sortURL("name"), ParseQuery("").sortURL("wait"), q.URL("page", "2")); got != "/?sort=kv/?sort=name/?dir=desc&sort=wait/?dir=desc&page=2&sort=kv" {
		t.Error(got)
	}
}

func FuzzQuery(f *testing.F) {
	f.Add("pool=llama&q=r1&sort=kv&dir=desc&page=3&live=1")
	in := input(3)
	f.Fuzz(func(t *testing.T, raw string) {
		q := ParseQuery(raw)
		again := ParseQuery(strings.TrimPrefix(strings.TrimPrefix(q.URL("", ""), "/"), "?"))
		again.Page, again.Live = q.Page, q.Live
		if *again != *q {
			t.Errorf("%q is %+v, and again %+v", raw, q, again)
		}
		render(t, in, raw)
	})
}

func BenchmarkLive(b *testing.B) {
	for _, n := range []int{64, 4096} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			in := input(n)
			for b.Loop() {
				render(b, in, "live=1")
			}
		})
	}
}
