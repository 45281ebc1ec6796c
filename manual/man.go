// Package manual writes man pages and shell completions from the command line's own
// model, so that they cannot differ from it.
package manual

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Page is a man page.
type Page struct {
	Name string // of its file
	Text string
}

// Notes are what the pages say besides the commands and their flags.
type Notes struct {
	Version string
	// Sections come at the end of the first page: a title and a text in plain
	// paragraphs each.
	Sections [][2]string
}

// Man returns the page of the program and one of each command.
func Man(app *kong.Application, notes Notes) (pages []Page) {
	commands := leaves(app.Node)
	var b strings.Builder
	begin(&b, app.Name, notes.Version, app.Help)
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n.I command\n.RI [ options ]\n", roff(app.Name))
	b.WriteString(".SH COMMANDS\n")
	for _, c := range commands {
		fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(pageName(c)), roff(c.Help))
	}
	writeSections(&b, notes.Sections)
	pages = append(pages, Page{app.Name + ".1", b.String()})
	for _, c := range commands {
		pages = append(pages, Page{pageName(c) + ".1", page(app, c, notes)})
	}
	return pages
}

// writeSections writes titles with their paragraphs.
func writeSections(b *strings.Builder, list [][2]string) {
	for _, s := range list {
		fmt.Fprintf(b, ".SH %s\n", strings.ToUpper(s[0]))
		for i, p := range strings.Split(s[1], "\n") {
			if i > 0 {
				b.WriteString(".PP\n")
			}
			b.WriteString(roff(p) + "\n")
		}
	}
}

// page is the page of a command.
func page(app *kong.Application, c *kong.Node, notes Notes) string {
	var b strings.Builder
	begin(&b, pageName(c), notes.Version, c.Help)
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(c.FullPath()))
	flags := flagsOf(c)
	if len(flags) > 0 {
		b.WriteString(".RI [ options ]\n")
	}
	for _, p := range c.Positional {
		fmt.Fprintf(&b, ".I %s\n", roff(p.Summary()))
	}
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", roff(c.Help))
	if c.Detail != "" {
		fmt.Fprintf(&b, ".PP\n%s\n", roff(c.Detail))
	}
	if len(c.Positional) > 0 {
		b.WriteString(".SH ARGUMENTS\n")
		for _, p := range c.Positional {
			fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", roff(p.Name), roff(p.Help))
		}
	}
	if len(flags) > 0 {
		b.WriteString(".SH OPTIONS\n")
		for _, f := range flags {
			b.WriteString(".TP\n")
			if f.Short != 0 {
				fmt.Fprintf(&b, ".BR %s \", \" %s", roff("-"+string(f.Short)), roff("--"+f.Name))
			} else {
				fmt.Fprintf(&b, ".B %s", roff("--"+f.Name))
			}
			if !f.IsBool() && !f.IsCounter() {
				fmt.Fprintf(&b, "%s", roff("="+strings.Trim(f.FormatPlaceHolder(), `"`)))
			}
			fmt.Fprintf(&b, "\n%s\n", roff(f.Help))
		}
	}
	fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(app.Name))
	return b.String()
}

func begin(b *strings.Builder, name, version, help string) {
	fmt.Fprintf(b, ".TH %s 1 \"\" %q \"User Commands\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(name), name+" "+version, roff(name), roff(strings.TrimSuffix(help, ".")))
}

// roff escapes what roff would read: backslashes, hyphens, and a dot or a quote at
// the beginning of a line.
func roff(s string) string {
	s = strings.NewReplacer("\\", "\\e", "-", "\\-", "…", "...", "–", "\\(en").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = "\\&" + s
	}
	return s
}

// pageName is the name of a command's page: pointsman-attach-haproxy.
func pageName(n *kong.Node) string { return strings.ReplaceAll(n.FullPath(), " ", "-") }

// leaves are the commands that can be run, in their order.
func leaves(n *kong.Node) (list []*kong.Node) {
	for _, c := range n.Children {
		switch {
		case c.Hidden || c.Type != kong.CommandNode:
		case len(c.Children) > 0:
			list = append(list, leaves(c)...)
		default:
			list = append(list, c)
		}
	}
	return list
}

// flagsOf are the flags that may stand after a command, its own first.
func flagsOf(n *kong.Node) (list []*kong.Flag) {
	for ; n != nil; n = n.Parent {
		for _, f := range n.Flags {
			if !f.Hidden && !slices.Contains(list, f) {
				list = append(list, f)
			}
		}
	}
	return list
}
