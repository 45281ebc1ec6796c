package haproxy

import (
	"strings"
	"testing"
	"time"

	"pointsman/templates"
)

func TestAdvise(t *testing.T) {
	want := Wanted{Version: templates.Version{Major: 3, Minor: 2}, Bufsize: 131072, Pools: []string{"llama"}, Socket: "/run/pm.sock", Queue: 2 * time.Minute}
	good := `global
    tune.bufsize 131072   # chroot /elsewhere
defaults
    option abortonclose
frontend fe
    log ring@pointsman-ring len 2048 format raw profile pointsman local0
    use_backend llama if { path_beg /v1/ }
`
	if got := Advise([]byte(good), want); len(got) != 0 {
		t.Errorf("nothing is missing, yet: %q", got)
	}
	for _, c := range []struct{ old, new, say string }{
		{"option abortonclose", "option httplog", "abortonclose"},
		{"tune.bufsize 131072", "tune.bufsize 32768", "tune.bufsize is 32768"},
		{"tune.bufsize 131072", "maxconn 10", "no tune.bufsize"},
		{"log ring@pointsman-ring len 2048 format raw profile pointsman local0", "log /dev/log local0", "no \"log ring@"},
		{" profile pointsman", "", "neither a profile"},
		{"use_backend llama", "use_backend web", "never asked"},
		{"option abortonclose", "option abortonclose\n    timeout queue 60s", "timeout queue is 1m0s"},
		{"option abortonclose", "option abortonclose\n    timeout queue 3m\nbackend b\n    timeout queue 5000", "timeout queue is 5s"},
		{"    use_backend llama", "    http-request deny if !{ req.body,json_query('$.model') -m str mine }\n    use_backend llama", "line 7: json_query can see another model"},
		{"    use_backend llama", "    acl big req.body,json_query('$.model') -m beg big-\n    use_backend llama", "line 7: json_query can see another model"},
		{"# chroot", "\n    chroot", "listen on /elsewhere/run/pm.sock too"},
	} {
		got := Advise([]byte(strings.Replace(good, c.old, c.new, 1)), want)
		if len(got) != 1 || !strings.Contains(got[0], c.say) {
			t.Errorf("%q for %q gives %q, want one about %q", c.new, c.old, got, c.say)
		}
	}
	want.Inside = []string{"/elsewhere/run/pm.sock"}
	if got := Advise([]byte(strings.Replace(good, "# chroot", "\n    chroot", 1)), want); len(got) != 0 {
		t.Errorf("the agent listens inside the chroot, yet: %q", got)
	}
	if got := Advise(nil, want); len(got) != 4 {
		t.Errorf("an empty file gives %d pieces of advice: %q", len(got), got)
	}
}

// TestAdviseOwnBackends: what was to be pasted into backends of the user's.
func TestAdviseOwnBackends(t *testing.T) {
	want := Wanted{Version: templates.Version{Major: 3, Minor: 4}, Own: []string{"llama"}}
	rest := `global
    tune.bufsize 131072
frontend fe
    log ring@pointsman-ring len 2048 format raw profile pointsman local0
    filter spoe engine pointsman config pointsman-spoe.conf
`
	follow := "    use-server %[var(txn.pm.server)] if { var(txn.pm.server) -m found }\n"
	for _, c := range []struct{ own, say string }{
		{"", "no backend llama"},
		{"backend other\n" + follow + "backend llama\n    server s 10.0.0.1:8000\n", "decisions are not followed"},
		{"backend llama\n" + follow + "    server s 10.0.0.1:8000\n", `no "option http-server-close"`},
		{"backend llama\n" + follow + "    option http-server-close\n", ""},
		{"backend llama\n" + follow + "    option httpclose\n", ""},
		{"defaults\n    option http-server-close\nbackend llama\n" + follow, ""},
	} {
		got := Advise([]byte(rest+c.own), want)
		if c.say == "" && len(got) > 0 || c.say != "" && (len(got) != 1 || !strings.Contains(got[0], c.say)) {
			t.Errorf("%q gives %q, want %q", c.own, got, c.say)
		}
	}
}

func FuzzAdvise(f *testing.F) {
	f.Add([]byte("global\n chroot\n tune.bufsize x\nfrontend\n use_backend\n log ring@pointsman-ring\n # \" '"))
	f.Fuzz(func(t *testing.T, b []byte) { Advise(b, Wanted{Pools: []string{"a"}}) })
}
