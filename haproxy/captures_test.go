package haproxy

import (
	"strings"
	"testing"
)

// TestCaptures: what a frontend captures is added up against the length of each log
// line that carries the feed's fields and the user's format.
func TestCaptures(t *testing.T) {
	const site = `global
    log /dev/log local0
defaults
    mode http
frontend fe
    bind :80
    LOG
    log-format "PM1 rid=%[var(txn.pm.rid)] PM. %ci %hr"
    CAPTURE
    use_backend llama
backend llama
    server r1 10.0.0.1:8000
`
	for _, c := range []struct {
		log, capture, says string
	}{
		{"log ring@pointsman-ring len 4096 format raw local0", "capture request header X len 1000\n    declare capture request len 2000\n    http-request capture path len 500", "add up to 3503 bytes"},
		{"log 127.0.0.1:514 local0", "capture cookie c len 400", "add up to 401 bytes"},
		{"log ring@pointsman-ring len 4096 format raw local0", "capture request header X len 1000", ""},
		{"log ring@pointsman-ring len 4096 format raw profile pointsman local0", "capture request header X len 9000", ""},
		{"log ring@pointsman-ring len 4096 format raw local0", "capture request header X len many", ""},
	} {
		text := strings.NewReplacer("LOG", c.log, "CAPTURE", c.capture).Replace(site)
		a := &adviser{sections: divide([]File{{"haproxy.cfg", []byte(text)}})}
		for _, s := range a.sections {
			if s.kind == "frontend" {
				a.captures(lead{s, &s.lines[0], "llama"})
			}
		}
		var got strings.Builder
		for _, f := range a.out {
			rules.See(f)
			got.WriteString(f.Problem + ": " + f.Remedy + "\n")
		}
		if c.says == "" && got.Len() > 0 || !strings.Contains(got.String(), c.says) {
			t.Errorf("%s, %s: %q, want %q", c.log, c.capture, got.String(), c.says)
		}
	}
}
