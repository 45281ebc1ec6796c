package haproxy

import (
	"strings"
	"testing"

	"pointsman/advice"
)

// TestAddresses: a configuration that leads elsewhere than where the agent listens is
// reported, unless it may be right.
func TestAddresses(t *testing.T) {
	for _, c := range []struct{ chroot, server, agent, want string }{
		{"", "unix@/run/pm.sock", "unix:///run/pm.sock", ""},
		{"", "/run/pm.sock", "unix:///run/pm.sock", ""},
		{"", "unix@/run/pm.sock", "unix:///tmp/pm.sock", "server a is at unix@/run/pm.sock, and the agent listens on unix:///tmp/pm.sock"},
		{"", "unix@/run/pm.sock", "127.0.0.1:9900", "listens on 127.0.0.1:9900"},
		{"", "127.0.0.1:9900", "unix:///run/pm.sock", "server a is at 127.0.0.1:9900"},
		{"", "127.0.0.1:9900", "tcp://0.0.0.0:9900", ""},
		{"", "pointsman:9901", "0.0.0.0:9900", "server a is at pointsman:9901"},
		{"", "${AGENT}", "0.0.0.0:9900", ""},
		{"", "unix@/elsewhere", "", ""},
		{"/var/lib/haproxy", "unix@/run/pm.sock", "unix:///var/lib/haproxy/run/pm.sock", ""},
		{"/chroot", "unix@/run/other.sock", "unix:///run/pm.sock", ""},
	} {
		text := "global\n    tune.bufsize 131072\n"
		if c.chroot != "" {
			text += "    chroot " + c.chroot + "\n"
		}
		text += "ring pointsman-ring\n    server a " + c.server + "\nbackend pointsman-agent\n    mode tcp\n    server a " + c.server + "\n"
		got := Advise([]File{{"haproxy.cfg", []byte(text)}}, Wanted{Agent: c.agent, Feed: c.agent, Bufsize: 131072, Inside: []string{"/chroot/run/other.sock"}})
		for _, f := range got {
			rules.See(f)
			if f.Rule != "address" || f.Level != advice.Warning || c.want == "" || !strings.Contains(f.Problem, c.want) || !strings.Contains(f.Remedy, "attach or render again") {
				t.Errorf("%+v gives %v", c, f)
			}
		}
		if (len(got) == 2) != (c.want != "") {
			t.Errorf("%+v gives %d findings", c, len(got))
		}
	}
}
