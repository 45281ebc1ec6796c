package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// TestStickTables has HAProxy count the cost of prompts by itself, with the lines that
// docs/budgets.md shows.
func TestStickTables(t *testing.T) {
	page, err := os.ReadFile("../../docs/budgets.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```haproxy\n(.*?)```").FindSubmatch(page)
	if example == nil {
		t.Fatal("no example")
	}
	lines := strings.Replace(string(example[1]), "gt 200000", "gt 4000", 1)
	for _, r := range rig.HAProxies(t) {
		if r.Version == "2.6" {
			continue // it counts nothing but ones
		}
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			s, _ := rig.Replicas(t, r, 1, "least_requests")
			s.Agent.Start()
			h := s.HAProxy()
			files, _ := h.Render()
			const after = "    # Order in HAProxy's queues, lowest class first.\n"
			if !strings.Contains(files["haproxy.cfg"], after) {
				t.Fatal(files["haproxy.cfg"])
			}
			const spoe = "pointsman-spoe.conf"
			h.Proc = proxies.Start(t, h.Bin, strings.Replace(files["haproxy.cfg"], after, lines+after, 1), proxies.File{Name: spoe, Text: files[spoe]})
			h.AwaitAgent()
			client := rig.NewClient(1, true, false)
			defer client.CloseIdleConnections()
			var got []int
			for range 4 {
				c := rig.Call{Body: rig.Chat(rig.Model, 6000, 8, false, 3)}
				got = append(got, c.Do(client, s.Front).Status)
			}
			if fmt.Sprint(got) != "[200 200 429 429]" {
				t.Errorf("%v: four times some 1,500 tokens of 4,000 a minute", got)
			}
		})
	}
}
