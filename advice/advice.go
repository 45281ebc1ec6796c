// Package advice is the form in which the readers of the proxies'
// configurations report what they find.
package advice

import "fmt"

// Levels of a finding.
const (
	Fault   = "fault"   // pointsman does not work as configured: the agent gets no questions or no reports, or requests fail
	Warning = "warning" // it works, worse than it could, whether or not pointsman is attached
)

// Finding is one fault or warning.
type Finding struct {
	Level   string `json:"level"`
	Rule    string `json:"rule"` // a stable name, for tools
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`    // from 1; 0 = the file misses something
	Section string `json:"section,omitempty"` // such as "frontend web" or "location /v1/"
	Problem string `json:"problem"`
	Remedy  string `json:"remedy,omitempty"`
}

// At is the place, file:line or only the file; empty if there is none.
func (f Finding) At() string {
	if f.Line == 0 {
		return f.File
	}
	return fmt.Sprintf("%s:%d", f.File, f.Line)
}

// String is the finding in one line.
func (f Finding) String() string {
	s := f.Problem
	if f.Section != "" {
		s = f.Section + ": " + s
	}
	if at := f.At(); at != "" {
		s = at + ": " + s
	}
	if f.Level == Warning {
		s = "warning: " + s
	}
	if f.Remedy != "" {
		s += ": " + f.Remedy
	}
	return s
}
