package page

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"pointsman/decider"
)

// Query selects what the page shows of the pools.
type Query struct {
	Pool  string // this one alone, "" = all
	Find  string // in the replicas' names and addresses
	State string // "", or "problems" for the replicas that are not up
	Sort  string // a column, "" = the order of the pool
	Desc  bool
	Page  int  // from 0
	Live  bool // the changing part alone
}

// maxFind bounds what is searched for.
const maxFind = 100

// ParseQuery reads a query string. It ignores what it does not know.
func ParseQuery(raw string) *Query {
	v, _ := url.ParseQuery(raw)
	q := &Query{Pool: v.Get("pool"), Find: v.Get("q"), State: v.Get("state"), Sort: v.Get("sort"), Desc: v.Get("dir") == "desc", Live: v.Get("live") != ""}
	q.Find = strings.TrimSpace(strings.ToValidUTF8(q.Find[:min(len(q.Find), maxFind)], ""))
	if q.State != "problems" {
		q.State = ""
	}
	if columns[q.Sort] == nil {
		q.Sort, q.Desc = "", false
	}
	q.Page, _ = strconv.Atoi(v.Get("page"))
	q.Page = min(max(q.Page, 0), 1<<20)
	return q
}

// URL is the page with one parameter changed; "" as value leaves it out. The number
// of the page goes unless it is what changes.
func (q *Query) URL(key, value string) string {
	v := url.Values{}
	set := func(k, x string) {
		if k == key {
			x = value
		}
		if x != "" {
			v.Set(k, x)
		}
	}
	set("pool", q.Pool)
	set("q", q.Find)
	set("state", q.State)
	set("sort", q.Sort)
	dir := ""
	if q.Desc {
		dir = "desc"
	}
	set("dir", dir)
	set("page", "")
	if len(v) == 0 {
		return "/"
	}
	return "/?" + v.Encode()
}

// sortURL is the page sorted by a column, or reversed if it is sorted by that already.
func (q *Query) sortURL(column string) string {
	c := *q
	c.Desc = q.Sort != column && column != "name" && column != "state" || q.Sort == column && !q.Desc
	return c.URL("sort", column)
}

// columns are the columns that rows can be sorted by.
var columns = map[string]func(a, b *decider.ReplicaStatus) int{
	"name":   func(a, b *decider.ReplicaStatus) int { return natural(a.Name, b.Name) },
	"state":  func(a, b *decider.ReplicaStatus) int { return cmp.Compare(a.State, b.State) },
	"flight": func(a, b *decider.ReplicaStatus) int { return cmp.Compare(a.InFlight, b.InFlight) },
	"queue":  func(a, b *decider.ReplicaStatus) int { return cmp.Compare(a.Waiting, b.Waiting) },
	"wait":   func(a, b *decider.ReplicaStatus) int { return cmp.Compare(a.Wait, b.Wait) },
	"kv":     func(a, b *decider.ReplicaStatus) int { return cmp.Compare(a.KVUsage, b.KVUsage) },
	"speed":  func(a, b *decider.ReplicaStatus) int { return cmp.Compare(a.PrefillSpeed, b.PrefillSpeed) },
	"age":    func(a, b *decider.ReplicaStatus) int { return cmp.Compare(a.SignalAge, b.SignalAge) },
	"failed": func(a, b *decider.ReplicaStatus) int { return cmp.Compare(a.Failed, b.Failed) },
	"served": func(a, b *decider.ReplicaStatus) int { return cmp.Compare(a.Served, b.Served) },
}

// natural compares names so that r10 comes after r9.
func natural(a, b string) int {
	x, y := strings.TrimRight(a, "0123456789"), strings.TrimRight(b, "0123456789")
	if x == y && len(a) != len(b) {
		return cmp.Compare(len(a), len(b))
	}
	return cmp.Compare(a, b)
}

// problem reports whether a replica is not as it should be.
func problem(r *decider.ReplicaStatus) bool { return r.State != "up" && r.State != "full" }

// choose returns the replicas that q asks for, in its order.
func (q *Query) choose(all []decider.ReplicaStatus) (list []*decider.ReplicaStatus) {
	find := strings.ToLower(q.Find)
	for i := range all {
		r := &all[i]
		if q.State == "problems" && !problem(r) || find != "" && !strings.Contains(strings.ToLower(r.Name+" "+r.Role+" "+r.Address), find) {
			continue
		}
		list = append(list, r)
	}
	if by := columns[q.Sort]; by != nil {
		slices.SortStableFunc(list, func(a, b *decider.ReplicaStatus) int {
			if q.Desc {
				a, b = b, a
			}
			return by(a, b)
		})
	}
	return list
}
