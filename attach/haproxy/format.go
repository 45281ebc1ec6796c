package haproxy

import (
	"strings"

	"pointsman/attach"
	hap "pointsman/haproxy"
)

// clfLog is what "option httplog clf" stands for.
const clfLog = "%{+Q}o %{-Q}ci - - [%trg] %r %ST %B \"\" \"\" %cp %ms %ft %b %s %TR %Tw %Tc %Tr %Ta %tsc %ac %fc %bc %sc %rc %sq %bq %CC %CS %hrl %hsl"

// format gives a frontend a log format that begins with the feed's fields, for HAProxy
// before 3.2, where all logs of a frontend share one. The fields come first because long
// captures may cut the end of a line off. It replaces the frontend's own log-format, or
// returns a line to add.
func (p *plan) format(f *section) attach.Line {
	const why = "your format, with pointsman's fields before it"
	fields := `"` + p.render.Fields + ` "`
	format, at, httplog := f.logFormat()
	switch {
	case format != nil:
		line := p.sources[at.file].lines[format.Line-1]
		text := "log-format " + fields + argument(line)
		if strings.Contains(line, `{"`) || strings.Contains(line, "+json") || strings.Contains(line, "+cbor") {
			p.note("%s: before HAProxy 3.2 all logs of a frontend share one format, so your own lines, which look like JSON, get pointsman's fields before them", p.where(at, format.Line))
		}
		if at != f {
			return attach.Line{Text: text, Why: why}
		}
		p.replace(f, format.Line, attach.Line{Text: text, Why: why})
		return attach.Line{}
	case httplog != nil && httplog.Arg(2) == "clf":
		return attach.Line{Text: "log-format " + fields + "'" + clfLog + "'", Why: why}
	}
	return attach.Line{Text: "log-format " + fields + `"` + p.render.HTTPLog + `"`, Why: why}
}

// logFormat returns the log-format that applies in a frontend, with its section, or nil;
// and its option httplog.
func (s *section) logFormat() (format *hap.Statement, at *section, httplog *hap.Statement) {
	format, at = s.find(begins("log-format"))
	httplog, by := s.find(begins("option", "httplog"))
	// The frontend's settings override those of its defaults, and within one section the
	// later line wins.
	if format != nil && httplog != nil {
		if at == by && httplog.Line > format.Line || at != by && closer(s, by, at) {
			format = nil
		}
	}
	return format, at, httplog
}

// atEnd makes a frontend log at the end of each request, from HAProxy 3.2 on. There the
// feed has its own format, but the frontend's format decides when to log: if that needs
// nothing known only at the end, HAProxy writes all logs earlier. log-steps would do too,
// but it removes the request's first line from formats that have it.
func (p *plan) atEnd(f *section) attach.Line {
	format, at, httplog := f.logFormat()
	switch {
	case format == nil && httplog != nil, format != nil && hap.LogsAtEnd(format.Text()):
		return attach.Line{}
	case format == nil || !hap.LogsRequest(format.Text()):
		return attach.Line{Text: "log-steps close", Why: "each request is logged at its end"}
	}
	line := attach.Line{Text: "log-format " + argument(p.sources[at.file].lines[format.Line-1]) + `" %ts"`, Why: "your format, with a field at its end that is known then"}
	p.note("%s: your log-format has no field that is known at the end of a request, so one is added: %%ts, how it ended", p.where(at, format.Line))
	if at != f {
		return line
	}
	p.replace(f, format.Line, line)
	return attach.Line{}
}

// closer reports whether section a comes before b in the chain of f's defaults.
func closer(f, a, b *section) bool {
	for s := f; s != nil; s = s.parent {
		if s == a || s == b {
			return s == a
		}
	}
	return false
}

// argument is the second word of a line as written, with its quotes.
func argument(line string) string {
	rest := strings.TrimLeft(line, " \t")
	_, rest, _ = strings.Cut(strings.ReplaceAll(rest, "\t", " "), " ")
	rest = strings.TrimLeft(rest, " ")
	var quote byte
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '\\' && quote != '\'':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == ' ' || c == '#':
			return rest[:i]
		}
	}
	return rest
}
