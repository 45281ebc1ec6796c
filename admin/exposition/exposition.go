// Package exposition completes a page of metrics to what Prometheus expects: each
// metric in one group, with its text and its type. It knows the names, types and
// texts of all metrics of pointsman.
package exposition

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// The types of metrics, in Prometheus' words.
const (
	Counter   = "counter"
	Gauge     = "gauge"
	Histogram = "histogram"
	Summary   = "summary"
)

// Family is a metric: all that have its name.
type Family struct {
	Name string // whole
	Type string
	Help string // one sentence, in plain text
}

const prefix = "pointsman_"

// Ours returns the metrics of pointsman itself.
func Ours() []Family {
	list := make([]Family, 0, len(ours))
	for _, f := range ours {
		f.Name = prefix + f.Name
		list = append(list, f)
	}
	return list
}

// known are all families by name.
var known = func() map[string]Family {
	m := map[string]Family{}
	for _, f := range append(Ours(), process...) {
		m[f.Name] = f
	}
	return m
}()

// group is a family with its lines on one page.
type group struct {
	Family
	lines []byte
	// For a histogram: whether the page has its sum, and its last bucket, from which the
	// missing lines are written.
	counted bool
	buckets []bucket
}

type bucket struct{ le, count float64 }

// Complete appends page, which has samples only, to dst, with the texts and types of its
// metrics. Samples of one metric come together, in their order on the page. Histograms of
// the Go runtime, which have buckets only, get a count and an estimated sum.
func Complete(dst, page []byte) []byte {
	groups := map[string]*group{} // by family and by name of a sample
	var order []*group
	for len(page) > 0 {
		var line []byte
		line, page, _ = bytes.Cut(page, []byte("\n"))
		end := bytes.IndexAny(line, "{ ")
		if end <= 0 || line[0] == '#' {
			continue
		}
		name := line[:end]
		g := groups[string(name)]
		if g == nil {
			f := FamilyOf(string(name))
			if unfit[f.Name] {
				continue
			}
			if g = groups[f.Name]; g == nil {
				g = &group{Family: f}
				groups[f.Name] = g
				order = append(order, g)
			}
			groups[string(name)] = g
		}
		g.lines = append(append(g.lines, line...), '\n')
		if g.Type == Histogram {
			g.see(name, line)
		}
	}
	for _, g := range order {
		if g.Help != "" {
			dst = fmt.Appendf(dst, "# HELP %s %s\n", g.Name, g.Help)
		}
		dst = fmt.Appendf(dst, "# TYPE %s %s\n", g.Name, g.Type)
		dst = append(dst, g.lines...)
		if g.Type == Histogram && !g.counted {
			dst = g.count(dst)
		}
	}
	return dst
}

// FamilyOf returns the family that a sample of this name belongs to. Its Help is
// empty when it is not known here.
func FamilyOf(name string) Family {
	if f, ok := known[name]; ok {
		return f
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if whole, ok := strings.CutSuffix(name, suffix); ok {
			if f, ok := known[whole]; ok && (f.Type == Histogram || f.Type == Summary) {
				return f
			}
		}
	}
	if strings.HasSuffix(name, "_total") {
		return Family{Name: name, Type: Counter}
	}
	return Family{Name: name, Type: Gauge}
}

// see notes a line of a histogram that has no labels but le.
func (g *group) see(name, line []byte) {
	if bytes.HasSuffix(name, []byte("_count")) {
		g.counted = true
	}
	rest, ok := bytes.CutPrefix(line[len(name):], []byte(`{le="`))
	if g.counted || !ok {
		return
	}
	le, value, ok := bytes.Cut(rest, []byte(`"} `))
	if !ok {
		return
	}
	b := bucket{}
	var err, bad error
	b.le, err = strconv.ParseFloat(string(le), 64)
	b.count, bad = strconv.ParseFloat(string(value), 64)
	if err == nil && bad == nil {
		g.buckets = append(g.buckets, b)
	}
}

// count appends the count and the sum of a histogram. A sample counts with the
// upper bound of its bucket, in the last one with the lower bound.
func (g *group) count(dst []byte) []byte {
	sum, n, below := 0.0, 0.0, 0.0
	for i, b := range g.buckets {
		bound := b.le
		if i == len(g.buckets)-1 {
			bound = below
		}
		sum += (b.count - n) * bound
		n, below = b.count, b.le
	}
	return fmt.Appendf(dst, "%s_sum %g\n%s_count %g\n", g.Name, sum, g.Name, n)
}
