package haproxy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestSilences ends the requests of servers whose hosts are gone: nothing answers their checks,
// and they send nothing, for as long as longestSilence. One that refuses its checks may finish,
// and so may one that still sends.
func TestSilences(t *testing.T) {
	const head = "# pxname,svname,qcur,scur,bout,status,weight,addr,check_status,last_chk\n"
	var s silences
	at := time.Unix(1_000_000, 0)
	look := func(lines ...string) string {
		t.Helper()
		text := head
		for _, l := range lines {
			text += "llama," + l + "\n"
		}
		got, err := parseStat(strings.NewReader(text+"\n"), every)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(s.over("llama", got.silent, at))
	}
	const (
		timeout  = "10.0.0.1:8000,0,3,100,DOWN,1,,L4TOUT,"
		noRoute  = "10.0.0.2:8000,0,3,100,DOWN,1,,L4CON,No route to host"
		checking = "10.0.0.2:8000,0,3,100,DOWN,1,,* L4CON,"
		refused  = "10.0.0.3:8000,0,3,100,DOWN,1,,L4CON,Connection refused"
		unsure   = "10.0.0.4:8000,0,3,100,DOWN,1,,* L4CON,"
		idle     = "10.0.0.5:8000,0,0,100,DOWN,1,,L4TOUT,"
		up       = "10.0.0.6:8000,0,3,100,UP,1,,L4TOUT,"
		theirs   = "r1,0,3,100,DOWN,1,,L4TOUT,"
		broken   = "10.0.0.7:8000,0,3,-1,DOWN,1,,L4TOUT,"
	)
	all := []string{timeout, noRoute, refused, unsure, idle, up, theirs, broken}
	if got := look(all...); got != "[]" {
		t.Error("at once:", got)
	}
	at = at.Add(longestSilence / 2)
	if got := look(timeout, checking); got != "[]" {
		t.Error("too early:", got)
	}
	at = at.Add(longestSilence / 2)
	if got := look(all...); got != "[llama/10.0.0.1:8000 llama/10.0.0.2:8000]" {
		t.Error("in time:", got)
	}
	if got := look(all...); got != "[]" {
		t.Error("again at once:", got)
	}
	at = at.Add(longestSilence)
	if got := look(strings.Replace(timeout, ",100,", ",101,", 1), refused); got != "[]" {
		t.Error("it sends, and the other is back:", got)
	}
	at = at.Add(longestSilence)
	if got := look(noRoute); got != "[]" || len(s) != 1 {
		t.Error("gone a second time:", got, s)
	}
	if look(); len(s) != 0 {
		t.Error("nothing is left to remember:", s)
	}
}
