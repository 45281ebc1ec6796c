package haproxy

import (
	"fmt"
	"strings"
	"testing"

	"pointsman/decider"
)

// FuzzStatTexts has HAProxy report any texts about the check of a server and about itself.
// They arrive as they are, and nothing else changes.
func FuzzStatTexts(f *testing.F) {
	f.Add("Loading the model, please wait", "one, \"two\"")
	f.Add("\n\nllama,r9,0,3,DOWN,1,L4TOUT,,5,y\n\"", "x\nPid: 1\n# pxname")
	f.Add("no route to host", "\"\"")
	f.Fuzz(func(t *testing.T, last, description string) {
		if len(last)+len(description) > 4096 {
			return
		}
		quote := func(text string) string { // as HAProxy does
			if strings.ContainsAny(text, ",\"\r\n") {
				return `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
			}
			return text
		}
		record := "llama,r1,0,3,DOWN,7,L4CON," + quote(last) + ",5,10.0.0.1:80"
		if got := appendFields(nil, record); len(got) != 10 || got[7] != last {
			t.Errorf("%q has the fields %q", record, got)
		}
		got, err := parseStat(strings.NewReader("Pid: 4711\nnode: lb1\ndescription: "+quote(description)+"\n\n# pxname,svname,qcur,scur,status,weight,check_status,last_chk,bout,addr\n"+
			record+"\nllama,r2,0,0,UP,1,L7OK,,5,10.0.0.2:80\n\n"), every)
		of := origin([]byte("lb1/4711"))
		want := []decider.ReplicaState{
			{Name: "r1", Address: "10.0.0.1:80", Weight: 7, Requests: 3, Counted: true, Origin: of},
			{Name: "r2", Address: "10.0.0.2:80", Up: true, Checked: true, Idle: true, Weight: 1, Counted: true, Origin: of},
		}
		if err != nil || fmt.Sprint(got.states["llama"]) != fmt.Sprint(want) {
			t.Errorf("got  %v, %v\nwant %v", got.states, err, want)
		}
	})
}
