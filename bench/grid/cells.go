package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"pointsman/sim/workload"
)

// seeds are those of a cell, from the first to the last.
type seeds struct{ from, to int }

func (s seeds) String() string {
	if s.from == s.to {
		return strconv.Itoa(s.from)
	}
	return fmt.Sprintf("%d-%d", s.from, s.to)
}

// contains reports whether seed is one of them.
func (s seeds) contains(seed int) bool { return s.from <= seed && seed <= s.to }

// parseSeeds reads what String writes.
func parseSeeds(text string) (s seeds, err error) {
	from, to, several := strings.Cut(text, "-")
	if s.from, err = strconv.Atoi(from); err == nil {
		if s.to = s.from; several {
			s.to, err = strconv.Atoi(to)
		}
	}
	if err != nil || s.from < 0 || s.to < s.from {
		return s, fmt.Errorf("seeds %.40q: want a number, or two as 1-3", text)
	}
	return s, nil
}

// cells are the selected cells, without results.
func (o *options) cells() (cells []*cell, err error) {
	if o.list != "" {
		return o.listed()
	}
	var workloads []string
	if o.workloads != "" {
		workloads = strings.Split(o.workloads, ",")
	}
	if o.trace != "" && !slices.Contains(workloads, conversation) {
		workloads = append(workloads, conversation)
	}
	of, err := parseSeeds(o.seeds)
	if err != nil {
		return nil, err
	}
	for _, name := range workloads {
		for _, replicas := range strings.Split(o.replicas, ",") {
			for _, cache := range strings.Split(o.caches, ",") {
				for _, load := range strings.Split(o.loads, ",") {
					c, err := newCell(name, replicas, cache, load, of)
					if err != nil {
						return nil, err
					}
					cells = append(cells, c)
				}
			}
		}
	}
	return cells, nil
}

// listed are the cells of the file o.list: one on each line, as workload, replicas,
// tokens of cache, load and seeds. Those of the trace are left out without it.
func (o *options) listed() (cells []*cell, err error) {
	b, err := os.ReadFile(o.list)
	if err != nil {
		return nil, err
	}
	for i, line := range strings.Split(string(b), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") || fields[0] == conversation && o.trace == "" {
			continue
		}
		if len(fields) != 5 {
			return nil, fmt.Errorf("%s:%d: %d fields, want workload, replicas, tokens of cache, load and seeds", o.list, i+1, len(fields))
		}
		of, err := parseSeeds(fields[4])
		var c *cell
		if err == nil {
			c, err = newCell(fields[0], fields[1], fields[2], fields[3], of)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", o.list, i+1, err)
		}
		cells = append(cells, c)
	}
	return cells, nil
}

// newCell reads a cell from its parts.
func newCell(name, replicas, cache, load string, of seeds) (*cell, error) {
	c := &cell{setup: setup{workload: name}, seeds: of}
	var err, err2, err3 error
	c.replicas, err = strconv.Atoi(replicas)
	c.cache, err2 = strconv.Atoi(cache)
	c.load, err3 = strconv.ParseFloat(load, 64)
	if err != nil || err2 != nil || err3 != nil {
		return nil, fmt.Errorf("%s replicas, %s tokens of cache, load %s: want numbers", replicas, cache, load)
	}
	if name != conversation {
		if err := workload.Check(name); err != nil {
			return nil, err
		}
	}
	return c, nil
}
