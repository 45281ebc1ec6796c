package manual

import (
	"fmt"
	"strings"
)

// File is a file whose format has a page in section 5.
type File struct {
	Name     string // as pointsman.yaml
	Help     string // one sentence
	Version  string // of the program
	Text     []string
	Keys     []Entry
	Sections [][2]string // as in Notes
}

// Entry is a key of a file: its path, its default if it has one, and what it means.
type Entry struct{ Path, Default, Meaning string }

// Page is the page of f.
func (f File) Page() Page {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 5 \"\" %q \"File Formats\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(f.Name), "pointsman "+f.Version, roff(f.Name), roff(strings.TrimSuffix(f.Help, ".")))
	b.WriteString(".SH DESCRIPTION\n")
	for i, p := range f.Text {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		b.WriteString(roff(p) + "\n")
	}
	b.WriteString(".SH KEYS\n")
	for _, k := range f.Keys {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(k.Path), roff(k.Meaning))
		if k.Default != "" {
			fmt.Fprintf(&b, ".br\nDefault: %s\n", roff(k.Default))
		}
	}
	writeSections(&b, f.Sections)
	return Page{f.Name + ".5", b.String()}
}
