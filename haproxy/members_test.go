package haproxy

import (
	"fmt"
	"testing"

	"pointsman/decider"
	"pointsman/templates"
)

func TestCommands(t *testing.T) {
	has := []decider.ReplicaState{{Name: "10.0.0.1:8000"}, {Name: "10.0.0.2:8000"}, {Name: "fd00::1:8000"}, {Name: "theirs"}, {Name: "r:1"}}
	want := []Member{{"10.0.0.1:8000", "10.0.0.1:8000", 0}, {"fd00::2:8000", "[fd00::2]:8000", 3}}
	var got []string
	for _, c := range commands("llama", has, want, templates.Version{Major: 2, Minor: 6}) {
		got = append(got, c.text)
	}
	if fmt.Sprint(got) != fmt.Sprint([]string{
		"add server llama/fd00::2:8000 [fd00::2]:8000 weight 3 check inter 2s fall 3 rise 2 observe layer4 error-limit 1 on-error mark-down downinter 500ms pool-max-conn -1 pool-purge-delay 5s sni var(txn.pm.conn),add(txn.pm.own),set-var(txn.pm.conn),sub(txn.pm.own)",
		"enable health llama/fd00::2:8000", "enable server llama/fd00::2:8000",
		"set server llama/10.0.0.2:8000 state maint", "del server llama/10.0.0.2:8000",
		"set server llama/fd00::1:8000 state maint", "del server llama/fd00::1:8000",
	}) {
		t.Errorf("%q", got)
	}
	if got := commands("llama", has, []Member{{"10.0.0.1:8000", "", 1}, {"10.0.0.2:8000", "", 1}, {"fd00::1:8000", "", 1}}, templates.Version{}); len(got) != 0 {
		t.Errorf("nothing is to be done: %v", got)
	}
}
