package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"pointsman/admin/history"
	"pointsman/decider"
	"pointsman/link"
)

// How many rows a page has: of all pools together, of each of several pools, and of
// a pool that is shown alone. And how many decisions.
const (
	maxRows      = 256
	rowsOfMany   = 64
	rowsOfOne    = 128
	maxDecisions = 24
	maxPools     = 64
)

// view is the whole page, in texts.
type view struct {
	*Input
	Query     *Query
	Uptime    string
	Clock     string
	Problems  []string
	Tiles     []tile
	PoolLinks []poolLink
	Pools     []*poolView
	PoolsLeft int
	Proxies   []proxyView
	Decisions []decisionRow
	Example   string // a model's name
}

// tile is a figure at the top.
type tile struct{ Name, Value, Note string }

type poolLink struct {
	Name, URL string
	Current   bool
}

type poolView struct {
	Name, Policy, Models string
	Facts                []tile
	Bands                *bandsView
	Columns              []column
	Rows                 []row
	Shown, All, Found    int
	Overview             string // address of the picture of all replicas, "" = the rows show all
	Prev, Next           string // addresses of the neighbouring pages
	From, To             int
	More                 string // address of the pool alone
	Most                 int    // requests at a replica, the darkest field
}

type column struct {
	Title, Hint, URL, Sorted, Class string
}

// row is a replica. Texts are as they are shown.
type row struct {
	Name, Address, Role, State, StateText                 string
	Flight, Queue, Wait, KV, Hit, Speed, Age, Served, Bad string
	KVShare                                               int // of 100, -1 = not known
	Strip                                                 []stripPath
	LoadText                                              string
	Stale                                                 bool
}

type bandsView struct {
	Where, Note string
	Rows        []bandRow
}

type bandRow struct {
	Name, Class, Queued, Tokens, Oldest, Held, Admitted, Wait, Shed, Gone string
}

type proxyView struct {
	Name, Connected, Questions, Rate, Feed, Unreported, Unanswered, Mismatches, Bypassed string
	OK                                                                                   bool
}

type decisionRow struct {
	Age, Pool, ID, Model, Server, Why, Input, Candidates, URL string
	Key                                                       string
}

func newView(in *Input, q *Query) *view {
	v := &view{Input: in, Query: q, Uptime: seconds(in.Now.Sub(in.Started).Seconds()), Clock: in.Now.Format("15:04:05")}
	var total totals
	rows := maxRows
	for i := range in.Pools {
		p := &in.Pools[i]
		if v.Example == "" && len(p.Models) > 0 {
			v.Example = p.Models[0]
		}
		h := in.History.Pool(in.Now, p)
		if h == nil {
			h = &history.Pool{HitRate: -1}
		}
		total.add(p, h)
		if len(in.Pools) > 1 {
			v.PoolLinks = append(v.PoolLinks, poolLink{p.Name, q.URL("pool", p.Name), p.Name == q.Pool})
		}
		switch {
		case q.Pool != "" && q.Pool != p.Name:
		case len(v.Pools) >= maxPools:
			v.PoolsLeft++
		default:
			alone := q.Pool == p.Name || len(in.Pools) == 1
			x := newPoolView(p, h, q, alone, rows)
			rows -= len(x.Rows)
			v.Pools = append(v.Pools, x)
		}
	}
	v.Tiles = total.tiles()
	v.Problems = problems(in)
	for i := range in.Proxies {
		v.Proxies = append(v.Proxies, newProxyView(&in.Proxies[i]))
	}
	slices.SortStableFunc(in.Records, func(a, b decider.Record) int { return cmp.Compare(a.Age, b.Age) })
	for i := range in.Records {
		if r := &in.Records[i]; (q.Pool == "" || r.Pool == q.Pool) && len(v.Decisions) < maxDecisions {
			v.Decisions = append(v.Decisions, newDecisionRow(r))
		}
	}
	return v
}

// totals are what the tiles show.
type totals struct {
	replicas, up, flight, waiting, held int
	rate                                float64
	failed                              uint64
	prompt, expected, achievable        float64
	reported, pools                     float64
}

func (t *totals) add(p *decider.PoolStatus, h *history.Pool) {
	for i := range p.Replicas {
		r := &p.Replicas[i]
		t.replicas++
		if !problem(r) {
			t.up++
		}
		t.flight += r.InFlight
		t.waiting += r.Waiting
	}
	if a := p.Admission; a != nil {
		for _, b := range a.Bands {
			t.held += b.Queued
		}
	}
	t.rate += h.Rate
	t.failed += h.Failed
	if x := p.HitRatio; x != nil {
		w := max(h.Rate, 1e-9)
		t.prompt += w
		t.expected += w * x.Expected
		t.achievable += w * x.Achievable
	}
	if h.HitRate >= 0 {
		t.reported += h.HitRate
		t.pools++
	}
}

func (t *totals) tiles() []tile {
	hit := func(v, of float64) string {
		if of == 0 {
			return none
		}
		return percent(v / of)
	}
	return []tile{
		{"Decisions", short(t.rate) + "/s", "over the last minute"},
		{"In flight", count(t.flight), count(t.waiting) + " before their first token"},
		{"Held", count(t.held), "wait for a replica"},
		{"Replicas", fmt.Sprintf("%s of %s", count(t.up), count(t.replicas)), "take requests"},
		{"Failed", count(t.failed), "by replicas, over the last minute"},
		{"Cache hits", hit(t.expected, t.prompt), "expected; " + hit(t.reported, t.pools) + " reported, " + hit(t.achievable, t.prompt) + " achievable"},
	}
}

// maxProblems bounds the list at the top.
const maxProblems = 8

// passedOver is the state of replicas whose decisions the proxy does not follow.
const passedOver = "not used by the proxy, which gives its requests to others"

func problems(in *Input) (list []string) {
	if in.Draining {
		list = append(list, "The agent drains: it answers what it has and then ends.")
	}
	for i := range in.Proxies {
		l := &in.Proxies[i]
		if l.Problem != "" {
			list = append(list, l.Proxy+": "+l.Problem+".")
		}
		for _, name := range slices.Sorted(maps.Keys(l.Bypassed)) {
			list = append(list, fmt.Sprintf("%s: %s requests of frontend %s reached a pool without a question.", l.Proxy, count(l.Bypassed[name]), name))
		}
	}
	for i := range in.Pools {
		p := &in.Pools[i]
		bad := map[string][]string{}
		for j := range p.Replicas {
			r := &p.Replicas[j]
			if r.Passed() {
				bad[passedOver] = append(bad[passedOver], r.Name)
			} else if r.State == "down" || r.State == "ejected" {
				bad[r.State] = append(bad[r.State], r.Name)
			}
		}
		if len(p.Replicas) == 0 {
			list = append(list, "Pool "+p.Name+" has no replicas: none in the configuration, and none found yet.")
		}
		for _, state := range slices.Sorted(maps.Keys(bad)) {
			names := bad[state]
			text := strings.Join(names[:min(len(names), 5)], ", ")
			if len(names) > 5 {
				text += fmt.Sprintf(" and %d more", len(names)-5)
			}
			list = append(list, fmt.Sprintf("Pool %s: %s %s.", p.Name, text, state))
		}
	}
	if in.RuntimeAPI != "" {
		list = append(list, in.RuntimeAPI+".")
	}
	for _, r := range in.Refusals {
		list = append(list, "HAProxy refuses "+r)
	}
	for _, s := range in.Sections {
		list = append(list, s.Problems...)
	}
	if n := len(list); n > maxProblems {
		list = append(list[:maxProblems-1:maxProblems-1], fmt.Sprintf("%d more.", n-maxProblems+1))
	}
	return list
}

func newProxyView(l *link.Status) proxyView {
	v := proxyView{
		Name: strings.TrimSpace(l.Proxy + " " + l.Version), Connected: "no", Questions: count(l.Questions), Rate: short(l.Rate) + "/s", Feed: age(l.FeedAge),
		Unreported: count(l.Unreported), Unanswered: count(l.Unanswered), Mismatches: count(l.Mismatches), OK: l.Problem == "",
	}
	if l.Connected {
		v.Connected = "yes"
	}
	n := uint64(0)
	for _, b := range l.Bypassed {
		n += b
	}
	v.Bypassed = count(n)
	return v
}

func newDecisionRow(r *decider.Record) decisionRow {
	d := decisionRow{
		Age: age(r.Age), Pool: r.Pool, ID: r.ID, Model: r.Model, Server: r.Server, Why: r.Why, Input: count(r.Input), Candidates: count(r.Candidates),
		Key: r.Pool + "-" + strconv.FormatUint(r.Seq, 10),
	}
	if d.Server == "" {
		d.Server = none
	}
	d.URL = DecisionURL(r)
	return d
}
