package haproxy

import (
	"slices"
	"strconv"
	"strings"

	"pointsman/templates"
)

const (
	defaultLogLen = 1024 // bytes of a log line without "len"
	feedFields    = 512  // bytes of a line that our fields take at most
	usualFormat   = 256  // bytes that HAProxy's usual format takes, without captures and the request line
)

// captures warns about a frontend that captures more than its log lines hold. Where the
// feed's fields and the user's format share a line, HAProxy cuts its end: that is the
// user's part, as the fields come first.
func (a *adviser) captures(l lead) {
	captured := 0
	for i := range l.lines {
		r := &l.lines[i]
		if !r.Is("capture") && !r.Is("declare", "capture") && !r.Is("http-request", "capture") && !r.Is("http-response", "capture") {
			continue
		}
		if at := slices.Index(r.Words, "len"); at > 0 && at+1 < len(r.Words) {
			if n, err := strconv.Atoi(r.Words[at+1]); err == nil && n > 0 {
				captured += min(n, 1<<20) + 1
			}
		}
	}
	format := l.last("log-format")
	if captured == 0 || format == nil || !strings.HasPrefix(format.Arg(1), templates.FeedMarker+" ") {
		return
	}
	need := feedFields + usualFormat + captured
	for _, log := range l.logs(a.logs()) {
		if slices.Contains(log.Words, "profile") {
			continue // it has a format of its own
		}
		size := defaultLogLen
		if at := slices.Index(log.Words, "len"); at > 0 && at+1 < len(log.Words) {
			if n, err := strconv.Atoi(log.Words[at+1]); err == nil {
				size = n
			}
		}
		if need > size {
			a.warn("captures", l.section, log, "set len "+strconv.Itoa((need/1024+2)*1024)+" in this log line, or capture less",
				"lines of %d bytes are cut here: the captures of this frontend add up to %d bytes beside the feed's fields and your own format", size, captured)
		}
	}
}
