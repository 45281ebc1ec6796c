package page

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"pointsman/admin/history"
	"pointsman/decider"
)

func newPoolView(p *decider.PoolStatus, h *history.Pool, q *Query, alone bool, rows int) *poolView {
	v := &poolView{Name: p.Name, Policy: p.Policy, Models: "any model", All: len(p.Replicas), Most: h.Most, Columns: titles(q)}
	if len(p.Models) > 0 {
		v.Models = strings.Join(p.Models[:min(len(p.Models), 8)], ", ")
		if n := len(p.Models); n > 8 {
			v.Models += fmt.Sprintf(" and %d more", n-8)
		}
	}
	expected, achievable := -1.0, -1.0
	if x := p.HitRatio; x != nil {
		expected, achievable = x.Expected, x.Achievable
	}
	v.Facts = []tile{
		{"decisions", short(h.Rate) + "/s", "over the last minute"},
		{"in flight", count(p.Reservations), "requests placed and not yet ended"},
		{"hits expected", percent(expected), "share of the prompts' tokens that is believed cached on the chosen replicas, of about five minutes"},
		{"reported", percent(h.HitRate), "share that the engines found in their prefix caches, of the last five minutes"},
		{"achievable", percent(achievable), "share if each request went where most of it is cached"},
		{"placed by the proxy", count(p.FellOpen), "requests that the agent did not place, since its start"},
	}
	if l := p.Legs; l != nil {
		v.Facts = append(v.Facts, tile{"prefilled elsewhere", percent(float64(l.Legs) / float64(max(l.Legs+l.Local, 1))), "share of the prompts that were computed by prefill replicas, since the agent's start"})
	}
	list := q.choose(p.Replicas)
	v.Found = len(list)
	most := min(rowsOfMany, rows)
	if alone {
		most = rowsOfOne
		page := min(q.Page, max(0, (len(list)-1)/rowsOfOne))
		if page > 0 {
			v.Prev = q.URL("page", strconv.Itoa(page-1))
			if page == 1 {
				v.Prev = q.URL("page", "")
			}
		}
		if (page+1)*rowsOfOne < len(list) {
			v.Next = q.URL("page", strconv.Itoa(page+1))
		}
		list = list[page*rowsOfOne:]
		v.From = page * rowsOfOne
	} else if len(list) > most {
		v.More = q.URL("pool", p.Name)
	}
	list = list[:min(len(list), max(most, 0))]
	v.Shown, v.To = len(list), v.From+len(list)
	v.From++
	if len(p.Replicas) > v.Shown {
		v.Overview = "/load.png?pool=" + url.QueryEscape(p.Name)
	}
	for _, r := range list {
		v.Rows = append(v.Rows, newRow(r, h))
	}
	if p.Admission != nil {
		v.Bands = newBandsView(p.Admission)
	}
	return v
}

// titles are the columns of the replicas.
func titles(q *Query) (list []column) {
	for _, c := range []struct{ title, hint, sort, class string }{
		{"Replica", "name, role if it has one, and address", "name", "name"},
		{"State", "up, full, ejected, draining or down", "state", ""},
		{"In flight", "requests placed on it and not yet ended", "flight", "n"},
		{"Queue", "of these, those before their first token", "queue", "n"},
		{"Wait", "how long a further prompt would wait before it is computed, as predicted", "wait", "n"},
		{"KV use", "used share of its KV cache", "kv", "n"},
		{"Hits", "share of prefix tokens that its engine found cached, of the last five minutes", "", "n"},
		{"Speed", "learned prefill speed, in tokens per second", "speed", "n opt"},
		{"Signals", "time since its engine's last report", "age", "n opt"},
		{"Served", "requests it served since the agent's start", "served", "n opt"},
		{"Failed", "requests it failed since the agent's start", "failed", "n opt"},
		{"Last 5 minutes", "requests in flight, every 5 s: the darker, the nearer to the pool's largest", "", "map"},
	} {
		x := column{Title: c.title, Hint: c.hint, Class: c.class}
		if c.sort != "" {
			x.URL = q.sortURL(c.sort)
			if q.Sort == c.sort {
				x.Sorted = "ascending"
				if q.Desc {
					x.Sorted = "descending"
				}
			}
		}
		list = append(list, x)
	}
	return list
}

// staleSignals is from which age on the signals of an engine are old, in seconds.
const staleSignals = 10

func newRow(r *decider.ReplicaStatus, h *history.Pool) row {
	x := row{
		Name: r.Name, Address: r.Address, Role: r.Role, State: r.State, StateText: r.State,
		Flight: count(r.InFlight), Queue: count(r.Waiting), Wait: seconds(r.Wait), KV: percent(r.KVUsage), Hit: none,
		Speed: short(r.PrefillSpeed), Age: age(r.SignalAge), Served: count(r.Served), Bad: count(r.Failed), KVShare: -1,
		Stale: r.SignalAge > staleSignals,
	}
	switch {
	case r.State == "up" && !r.Seen:
		x.State, x.StateText = "unknown", "up, not seen"
	case r.State == "ejected":
		x.StateText = "ejected " + seconds(r.EjectedFor)
	}
	if r.Limit > 0 {
		x.Flight += " / " + count(r.Limit)
	}
	if r.KVUsage >= 0 {
		x.KVShare = int(100*r.KVUsage + .5)
	}
	if v, ok := h.Hits[r.Name]; ok {
		x.Hit = percent(v)
	}
	if l := h.Loads[r.Name]; l != nil {
		x.Strip, x.LoadText = strip(l, h.Most)
	}
	return x
}

func newBandsView(a *decider.AdmissionStatus) *bandsView {
	v := &bandsView{Where: "in the agent"}
	if !a.Hold {
		v.Where = "in the proxy"
	}
	v.Note = fmt.Sprintf("%s without capacity; a request of the last band would wait %s", plural(a.Saturated, "replica"), seconds(a.Wait))
	if a.NoReplica {
		v.Note = "until a replica is up"
	}
	for i := range a.Bands {
		b := &a.Bands[i]
		for _, class := range slices.Sorted(maps.Keys(b.Counts)) {
			c := b.Counts[class]
			shed := uint64(0)
			for _, n := range c.Refused {
				shed += n
			}
			v.Rows = append(v.Rows, bandRow{
				Name: b.Name, Class: class, Queued: count(b.Queued), Tokens: short(float64(b.Tokens)), Oldest: seconds(b.Oldest), Held: count(c.Held),
				Admitted: count(c.Admitted), Wait: seconds(c.WaitSeconds / float64(max(c.Admitted, 1))), Shed: count(shed), Gone: count(c.Gone),
			})
		}
	}
	return v
}
