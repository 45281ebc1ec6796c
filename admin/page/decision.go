package page

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"pointsman/decider"
)

// DecisionURL is the address of a decision with all its terms.
func DecisionURL(r *decider.Record) string {
	return "/decision?pool=" + url.QueryEscape(r.Pool) + "&seq=" + strconv.FormatUint(r.Seq, 10)
}

// candidatesView is a table of candidates with every term of their scores.
type candidatesView struct {
	Terms   []string
	Signals bool
	Rows    []candidateRow
	Left    int // candidates that are not shown
}

type candidateRow struct {
	Rank, Replica, Flight, Age, Note string
	Terms                            []string
	Chosen                           bool
}

// maxCandidates bounds the rows of one table.
const maxCandidates = 100

func newCandidatesView(list []decider.Candidate) *candidatesView {
	v := &candidatesView{}
	names := map[string]bool{}
	for i := range list {
		for n := range list[i].Terms {
			names[n] = true
		}
		v.Signals = v.Signals || list[i].SignalAge != nil
	}
	v.Terms = slices.Sorted(maps.Keys(names))
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b decider.Candidate) int {
		return cmp.Or(cmp.Compare(order(&a), order(&b)))
	})
	if len(list) > maxCandidates {
		v.Left, list = len(list)-maxCandidates, list[:maxCandidates]
	}
	for i := range list {
		c := &list[i]
		r := candidateRow{Replica: c.Replica, Flight: count(c.InFlight), Age: "never", Note: strings.Trim(c.Excluded+", "+c.Saturated, ", "), Chosen: c.Rank == 1}
		if c.Rank > 0 {
			r.Rank = strconv.Itoa(c.Rank)
		}
		if c.SignalAge != nil {
			r.Age = age(*c.SignalAge)
		}
		for _, n := range v.Terms {
			text := none
			if t, ok := c.Terms[n]; ok {
				text = figure(t)
			}
			r.Terms = append(r.Terms, text)
		}
		v.Rows = append(v.Rows, r)
	}
	return v
}

// order sorts ranked candidates first, then the others, then excluded ones.
func order(c *decider.Candidate) int {
	switch {
	case c.Rank > 0:
		return c.Rank
	case c.Excluded == "":
		return 10
	}
	return 11
}

type decisionView struct {
	Title, Request, Result string
	Candidates             *candidatesView
}

func newDecisionView(r *decider.Record) *decisionView {
	v := &decisionView{
		Title:      fmt.Sprintf("Decision %s… of pool %s", r.ID, r.Pool),
		Request:    request(r.Input, r.Output, r.Model, r.Stream, r.Session, r.Cut),
		Result:     r.Server,
		Candidates: newCandidatesView(r.Considered),
	}
	if v.Result == "" {
		v.Result = "none: the proxy balances by itself"
	}
	if r.Why != "" {
		v.Result += " (" + r.Why + ")"
	}
	v.Candidates.Left += max(0, r.Candidates-len(r.Considered))
	return v
}

// request describes a request as it was read.
func request(input, output int, model string, stream, session, cut bool) string {
	list := []string{"about " + count(input) + " prompt tokens"}
	if output >= 0 {
		list = append(list, "at most "+count(output)+" output tokens")
	}
	if model != "" {
		list = append(list, "model "+model)
	}
	for _, x := range []struct {
		is   bool
		text string
	}{{stream, "streamed"}, {session, "with a session"}, {cut, "body cut"}} {
		if x.is {
			list = append(list, x.text)
		}
	}
	return strings.Join(list, ", ")
}

type explanationView struct {
	Pool, Policy, Request, Result, Queue, Budget string

	Candidates *candidatesView
}

func newExplanationView(x *decider.Explanation) *explanationView {
	v := &explanationView{
		Pool: x.Pool, Policy: x.Policy, Request: request(x.Input, x.Output, x.Model, x.Stream, x.Session, x.Cut),
		Candidates: newCandidatesView(x.Candidates),
	}
	switch {
	case x.Server != "":
		v.Result = strings.Join(append([]string{x.Server}, x.Fallbacks...), ", then ") + ", then the proxy's own balancing"
	case x.Refused != 0:
		v.Result = fmt.Sprintf("none, refused with %d", x.Refused)
	case x.Queue != nil && x.Queue.NoReplica:
		v.Result = "none, held until a replica is up"
	default:
		v.Result = "none, the proxy balances by itself"
	}
	if x.Why != "" {
		v.Result += " (" + x.Why + ")"
	}
	if q := x.Queue; q != nil {
		v.Queue = fmt.Sprintf("band %s, tenants %s, %s ahead, expected wait %s", q.Band, q.Class, count(q.Ahead), seconds(q.Wait))
		if q.Deadline > 0 {
			v.Queue += ", deadline in " + seconds(q.Deadline)
		}
	}
	if x.Budget != nil {
		v.Budget = x.Budget.String()
	}
	return v
}
