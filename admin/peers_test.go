package admin

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pointsman/admin/page"
	"pointsman/cluster"
)

// The status page shows the other agents, and what is wrong with them above all.
func TestPeers(t *testing.T) {
	c := cluster.Status{
		Cluster: "prod", Agent: "n1", Bus: "listens at 10.0.0.5:9910", Ready: true, Refused: 3,
		Peers: []cluster.PeerStatus{{Agent: "n2", State: "follows", Age: 0.2, Lag: 0.0031, Messages: 77}, {Agent: "n3", State: "silent", Age: 61}},
	}
	var b bytes.Buffer
	if err := page.Write(&b, &page.Input{Now: time.Now(), Sections: []page.Section{peers(&c)}}, page.ParseQuery("")); err != nil {
		t.Fatal(err)
	}
	above, _, ok := strings.Cut(b.String(), `id="pools"`)
	if !ok || !strings.Contains(above, "Agent n3 of the cluster has been silent for 61 s") || !strings.Contains(above, "3 messages or connections refused") {
		t.Errorf("the problems are\n%s", above)
	}
	for _, want := range []string{`<section id="peers"`, "Cluster prod, this agent is n1: listens at 10.0.0.5:9910.", `<th scope="row">n2</th><td><span class="s up">follows</span></td><td class="n">0.2 s ago</td><td class="n">3.1 ms</td><td class="n">77</td>`, `<span class="s down">silent</span>`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
	c.Ready, c.Peers = false, nil
	if s := peers(&c); !strings.Contains(s.Summary, "joining") || !strings.Contains(s.Summary, "No other agent") {
		t.Error(s.Summary)
	}
}
