package trace

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pointsman/misuse"
)

// recordedLine is a line of a recording of pointsman's: a lengthsLine and more.
type recordedLine struct {
	lengthsLine
	Output  *int    `json:"output_length"`
	Pool    string  `json:"pool"`
	Tenant  string  `json:"tenant"`
	Stream  bool    `json:"stream"`
	Cut     bool    `json:"cut"`
	Outcome string  `json:"outcome"`
	Status  int     `json:"status"`
	TTFT    float64 `json:"ttft"` // seconds
}

// headerLine is the first line of a recording.
type headerLine struct {
	Recorder string `json:"recorder"`
	Form     int    `json:"form"`
	Pools    []struct {
		Name        string `json:"name"`
		Policy      string `json:"policy"`
		Shadow      bool   `json:"shadow"`
		Replicas    int    `json:"replicas"`
		CacheTokens int    `json:"cache_tokens"`
	} `json:"pools"`
}

// knownForm is the newest form of recordings that is read.
const knownForm = 1

// recording collects the data that only recordings have, by request of the parser.
type recording struct {
	block  int // tokens in a block, of lengths alone
	header headerLine
	found  bool
	pool   []string
	blocks []int // tokens in a block
	ended  []string
	ttft   []time.Duration
}

func (c *recording) is() bool { return len(c.pool) > 0 }

// recordingHeader reads the first line of a file.
func (p *parser) recordingHeader(h headerLine) error {
	if h.Form != knownForm {
		return fmt.Errorf("a recording in form %d, want %d: it is of another version of pointsman", h.Form, knownForm)
	}
	p.recording.header, p.recording.found = h, true
	return nil
}

// recorded reads a line of a recording.
func (p *parser) recorded(l *recordedLine) error {
	l.lengthsLine.Output = 0
	if l.Output != nil {
		l.lengthsLine.Output = *l.Output
	}
	r, err := l.request()
	if err != nil {
		return err
	}
	if l.BlockTokens == 0 {
		return fmt.Errorf("a recorded request without block_tokens")
	}
	if l.Status >= 400 && l.Status < 500 && l.Outcome != "shed" {
		p.note("Requests that were answered with an error of the client's, such as 400, are left out.")
		return nil
	}
	if l.Output == nil {
		r.Output = -1
	}
	r.Stream, r.Truncated = l.Stream, l.Cut
	if l.Session != "" {
		r.Session, r.HasSession = keyOf(l.Session), true
	}
	if l.Tenant != "" {
		r.Tenant = keyOf(l.Tenant)
	}
	if err := p.add(lengthsKind, r, l.Timestamp); err != nil {
		return err
	}
	c := &p.recording
	c.pool, c.blocks, c.ended = append(c.pool, l.Pool), append(c.blocks, l.BlockTokens), append(c.ended, l.Outcome)
	ttft := time.Duration(0)
	if l.Stream && l.TTFT > 0 && l.TTFT < 1e6 {
		ttft = time.Duration(l.TTFT * float64(time.Second))
	}
	c.ttft = append(c.ttft, ttft)
	return nil
}

// selectPool leaves the requests of one pool.
func (p *parser) selectPool() error {
	c := &p.recording
	if !c.is() {
		if p.options.Pool != "" {
			return misuse.Errorf("--pool %s is for recordings of pointsman, and this is none", p.options.Pool)
		}
		return nil
	}
	if len(c.pool) != len(p.requests) {
		return fmt.Errorf("some requests are of a recording, others are not")
	}
	names := map[string]int{}
	for _, name := range c.pool {
		names[name]++
	}
	want := p.options.Pool
	if want == "" && len(names) == 1 {
		want = c.pool[0]
	}
	if names[want] == 0 {
		var list []string
		for _, name := range slices.Sorted(maps.Keys(names)) {
			list = append(list, fmt.Sprintf("%s (%d requests)", name, names[name]))
		}
		return misuse.Errorf("want --pool with one of the recorded pools: %s", strings.Join(list, ", "))
	}
	n := 0
	for i, name := range c.pool {
		if name != want {
			continue
		}
		p.requests[n], p.times[n], p.unknown[n] = p.requests[i], p.times[i], p.unknown[i]
		c.pool[n], c.blocks[n], c.ended[n], c.ttft[n] = name, c.blocks[i], c.ended[i], c.ttft[i]
		n++
	}
	p.requests, p.times, p.unknown = p.requests[:n], p.times[:n], p.unknown[:n]
	c.pool, c.blocks, c.ended, c.ttft = c.pool[:n], c.blocks[:n], c.ended[:n], c.ttft[:n]
	return nil
}

// blockTokens is how many tokens a block has. A recording learns it as it goes: the
// median is the one that most of its blocks have.
func (p *parser) blockTokens() int {
	if !p.recording.is() {
		return p.recording.block
	}
	sorted := slices.Clone(p.recording.blocks)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}

// summary returns the figures of the recording.
func (c *recording) summary() *Recorded {
	s := &Recorded{}
	for _, h := range c.header.Pools {
		if h.Name == c.pool[0] {
			s.Policy, s.Shadow = h.Policy, h.Shadow
			s.Replicas, s.CacheTokens = max(h.Replicas, 0), max(h.CacheTokens, 0)
		}
	}
	for i, end := range c.ended {
		switch end {
		case "served":
			s.Served++
		case "shed":
			s.Shed++
		default:
			s.Unserved++
		}
		if end == "served" && c.ttft[i] > 0 {
			s.TTFT = append(s.TTFT, c.ttft[i])
		}
	}
	slices.Sort(s.TTFT)
	return s
}

// extrapolate completes the blocks of prompts that were not seen whole: by those of
// the same session, or else of the same beginning, as the turns of a conversation
// continue each other. An agent sees only what was seen.
func (t *Trace) extrapolate() {
	for i := range t.Requests {
		r := &t.Requests[i]
		n := min(r.Input/t.BlockTokens, maxExtrapolated)
		if !r.Truncated || len(r.Blocks) == 0 || len(r.Blocks) >= n {
			continue
		}
		r.Visible = r.Blocks
		r.Blocks = slices.Clone(r.Blocks)
		key := r.Blocks[len(r.Blocks)-1] ^ r.Session
		for len(r.Blocks) < n {
			key = Hash(key + 1)
			r.Blocks = append(r.Blocks, key)
		}
	}
}

// maxExtrapolated bounds the blocks of a prompt that are made up.
const maxExtrapolated = 1 << 14
