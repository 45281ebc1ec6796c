package link

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestProblem: a feed is reported as silent only after enough questions and time,
// and not any more after its next line.
func TestProblem(t *testing.T) {
	start := time.Now()
	feed := 0
	for _, c := range []struct {
		name        string
		connections bool // the feed has connections at all
		open        int
		questions   int
		after       time.Duration
		want        string
	}{
		{"no question", true, 0, 0, time.Hour, ""},
		{"reconnects", true, 0, 1, time.Second, ""},
		{"not connected", true, 0, 1, 4 * time.Second, "the feed is not connected, 1 questions since its last line"},
		{"long answers", true, 1, 19, time.Minute, ""},
		{"a burst", false, 0, 100, 9 * time.Second, ""},
		{"silent", false, 0, 20, 11 * time.Second, "the feed has sent nothing yet, 20 questions came"},
		{"silent for long", true, 1, 1, 6 * time.Minute, "the feed has sent nothing yet, 1 questions came"},
	} {
		l := &Link{Proxy: "haproxy", Connections: func() int { return 1 }}
		if feed = c.open; c.connections {
			l.FeedConnections = func() int { return feed }
		}
		for range c.questions {
			l.Asked(start)
		}
		s := l.Status(start.Add(c.after))
		if s.Problem != c.want || s.FeedAge != -1 || s.Questions != uint64(c.questions) {
			t.Errorf("%s: %+v, want the problem %q", c.name, s, c.want)
		}
		l.LineRead(start.Add(c.after))
		if s := l.Status(start.Add(c.after + 2*time.Second)); s.Problem != "" || s.FeedAge < 1.9 || s.FeedAge > 2.1 || s.SinceLine != 0 {
			t.Errorf("%s, after a line: %+v", c.name, s)
		}
	}
}

func TestCounts(t *testing.T) {
	now := time.Now()
	l := &Link{Proxy: "nginx"}
	for i := range 31 {
		now = now.Add(time.Second)
		for range 5 {
			l.Asked(now)
		}
		l.Ended(i%10 != 0, i%2 == 0)
		l.Tick(now)
	}
	l.SetVersion("1.30")
	s := l.Status(now)
	if s.Rate < 4.9 || s.Rate > 5.1 || s.Unreported != 4*31 || s.Unanswered != 4 || s.Mismatches != 16 || s.Version != "1.30" || s.Connected {
		t.Errorf("%+v", s)
	}
	var b strings.Builder
	s.WriteMetrics(&b)
	for _, want := range []string{`pointsman_questions_total{proxy="nginx"} 155`, `pointsman_unanswered_total{proxy="nginx"} 4`, `pointsman_mismatches_total{proxy="nginx"} 16`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
}

// Names of frontends come from anybody who reaches the feed.
func TestFrontendsAreBounded(t *testing.T) {
	l := &Link{Proxy: "haproxy"}
	firsts := 0
	for round := range 2 {
		for i := range 1000 {
			if _, first := l.Bypassed(fmt.Appendf(nil, "fe%d", i)); first {
				firsts++
			}
		}
		for _, odd := range []string{"a\"b", "x\ny", strings.Repeat("a", 65)} {
			if name, _ := l.Bypassed([]byte(odd)); name != others {
				t.Errorf("%q is kept as %q", odd, name)
			}
		}
		if name, first := l.Bypassed(nil); name != unknown && name != others || first && round > 0 {
			t.Errorf("no name: %q", name)
		}
	}
	all := uint64(0)
	s := l.Status(time.Now())
	for _, n := range s.Bypassed {
		all += n
	}
	if len(s.Bypassed) > maxFrontends+2 || firsts > maxFrontends+2 || all != 2*1004 {
		t.Errorf("%d frontends, %d firsts, %d requests", len(s.Bypassed), firsts, all)
	}
}

// A fault is one from the third sign on, and has a remedy.
func TestFaults(t *testing.T) {
	l := &Link{Proxy: "haproxy"}
	for f := range faults {
		l.Saw(f)
		l.Saw(f)
		if list := l.Status(time.Now()).Faults; len(list) != int(f) {
			t.Errorf("%v after two signs: %v", f, list)
		}
		l.Saw(f)
		list := l.Status(time.Now()).Faults
		if len(list) != int(f)+1 || list[f].Fault != f.String() || list[f].Count != 3 || list[f].Remedy == "" || !strings.Contains(list[f].Problem, "3 ") && !strings.Contains(list[f].Problem, " 3 ") {
			t.Errorf("%v after three signs: %v", f, list)
		}
	}
	s := l.Status(time.Now())
	var b strings.Builder
	s.WriteMetrics(&b)
	if want := `pointsman_proxy_faults_total{proxy="haproxy",fault="nameless"} 3`; !strings.Contains(b.String(), want) {
		t.Errorf("no %s in\n%s", want, b.String())
	}
	if l.Excused() {
		t.Error("excused without an answer")
	}
	if l.Undecided(); !l.Excused() || l.Excused() {
		t.Error("not excused once")
	}
}
