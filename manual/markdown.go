package manual

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Markdown returns a page with all commands and their flags.
func Markdown(app *kong.Application, notes Notes) string {
	var b strings.Builder
	for _, c := range leaves(app.Node) {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n```\n%s", c.FullPath(), cell(c.Help), c.FullPath())
		flags := flagsOf(c)
		if len(flags) > 0 {
			b.WriteString(" [options]")
		}
		for _, p := range c.Positional {
			b.WriteString(" " + p.Summary())
		}
		b.WriteString("\n```\n\n")
		if c.Detail != "" {
			b.WriteString(cell(c.Detail) + "\n\n")
		}
		if len(c.Positional) > 0 {
			b.WriteString("| argument | meaning |\n|---|---|\n")
			for _, p := range c.Positional {
				fmt.Fprintf(&b, "| `%s` | %s |\n", p.Name, cell(p.Help))
			}
			b.WriteString("\n")
		}
		if len(flags) == 0 {
			continue
		}
		b.WriteString("| option | meaning |\n|---|---|\n")
		for _, f := range flags {
			name := "`--" + f.Name
			if !f.IsBool() && !f.IsCounter() {
				name += "=" + strings.Trim(f.FormatPlaceHolder(), `"`)
			}
			name += "`"
			if f.Short != 0 {
				name = "`-" + string(f.Short) + "`, " + name
			}
			fmt.Fprintf(&b, "| %s | %s |\n", name, cell(f.Help))
		}
		b.WriteString("\n")
	}
	for _, s := range notes.Sections {
		if s[0] != "Exit status" {
			continue
		}
		fmt.Fprintf(&b, "## %s\n\n", s[0])
		for line := range strings.SplitSeq(s[1], "\n") {
			fmt.Fprintf(&b, "- %s\n", cell(line))
		}
	}
	return b.String()
}

// cell is plain text in a cell of a table, where | and < have a meaning.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "\n", " ").Replace(s)
}
