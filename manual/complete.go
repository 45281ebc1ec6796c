package manual

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Shells are those that Complete knows.
var Shells = []string{"bash", "zsh", "fish"}

// Complete returns the completions of a shell, of Shells.
func Complete(app *kong.Application, shell string) string {
	switch shell {
	case "zsh":
		return zsh(app)
	case "fish":
		return fish(app)
	}
	return bash(app)
}

// nodes are all commands with those above them, the program itself first.
func nodes(n *kong.Node) []*kong.Node {
	list := []*kong.Node{n}
	for _, c := range n.Children {
		if !c.Hidden && c.Type == kong.CommandNode {
			list = append(list, nodes(c)...)
		}
	}
	return list
}

// path is the words of a command without the program's name.
func path(n *kong.Node) string {
	_, rest, _ := strings.Cut(n.FullPath(), " ")
	return rest
}

// children are the words that may follow n: commands below it, or the choices of its
// first argument.
func children(n *kong.Node) (names []string) {
	if len(n.Positional) > 0 {
		return list(n.Positional[0].Enum)
	}
	for _, c := range n.Children {
		if !c.Hidden && c.Type == kong.CommandNode {
			names = append(names, c.Name)
		}
	}
	return names
}

// valued reports whether a flag wants a value.
func valued(f *kong.Flag) bool { return !f.IsBool() && !f.IsCounter() }

// choices are the values that a flag takes, nil = any.
func choices(f *kong.Flag) []string {
	return list(f.Enum)
}

// list splits the choices of kong; nil = there are none.
func list(enum string) []string {
	if enum == "" {
		return nil
	}
	return slices.DeleteFunc(strings.Split(enum, ","), func(s string) bool { return s == "" })
}

// bash completes commands, flags, the values of flags with few, and files otherwise.
func bash(app *kong.Application) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# bash completion of %s\n_%[1]s() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path= i\n", app.Name)
	b.WriteString("\tfor ((i = 1; i < COMP_CWORD; i++)); do\n\t\tcase \"$path ${COMP_WORDS[i]}\" in\n")
	var paths []string
	for _, n := range nodes(app.Node)[1:] {
		paths = append(paths, "\" "+path(n)+"\"")
	}
	fmt.Fprintf(&b, "\t\t%s) path=\"$path ${COMP_WORDS[i]}\" ;;\n\t\tesac\n\tdone\n", strings.Join(paths, " | "))
	b.WriteString("\tlocal commands= flags=\n\tcase \"$path\" in\n")
	for _, n := range nodes(app.Node) {
		at := ""
		if p := path(n); p != "" {
			at = " " + p
		}
		var flags []string
		for _, f := range flagsOf(n) {
			flags = append(flags, "--"+f.Name)
		}
		fmt.Fprintf(&b, "\t%q) commands=%q flags=%q ;;\n", at, strings.Join(children(n), " "), strings.Join(flags, " "))
	}
	b.WriteString("\tesac\n\tcase \"$path $prev\" in\n")
	for _, n := range leaves(app.Node) {
		for _, f := range flagsOf(n) {
			if c := choices(f); c != nil {
				fmt.Fprintf(&b, "\t%q) COMPREPLY=($(compgen -W %q -- \"$cur\")); return ;;\n", " "+path(n)+" --"+f.Name, strings.Join(c, " "))
			} else if valued(f) {
				fmt.Fprintf(&b, "\t%q) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", " "+path(n)+" --"+f.Name)
			}
		}
	}
	b.WriteString("\tesac\n\tif [[ $cur == -* ]]; then\n\t\tCOMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n")
	b.WriteString("\telif [[ -n $commands ]]; then\n\t\tCOMPREPLY=($(compgen -W \"$commands\" -- \"$cur\"))\n\telse\n\t\tCOMPREPLY=($(compgen -f -- \"$cur\"))\n\tfi\n}\n")
	fmt.Fprintf(&b, "complete -o filenames -F _%s %[1]s\n", app.Name)
	return b.String()
}

// fish needs a line for each command and flag.
func fish(app *kong.Application) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# fish completion of %s\ncomplete -c %[1]s -f\n", app.Name)
	for _, n := range nodes(app.Node) {
		where := "__fish_use_subcommand"
		if words := strings.Fields(path(n)); len(words) > 0 {
			where = "__fish_seen_subcommand_from " + strings.Join(words, "; and __fish_seen_subcommand_from ")
		}
		for _, c := range n.Children {
			if c.Hidden || c.Type != kong.CommandNode {
				continue
			}
			not := ""
			if n.Parent != nil {
				not = "; and not __fish_seen_subcommand_from " + strings.Join(children(n), " ")
			}
			fmt.Fprintf(&b, "complete -c %s -n '%s' -a %s -d '%s'\n", app.Name, where+not, c.Name, single(c.Help))
		}
		if len(n.Children) > 0 {
			continue
		}
		for _, f := range flagsOf(n) {
			line := fmt.Sprintf("complete -c %s -n '%s' -l %s", app.Name, where, f.Name)
			if f.Short != 0 {
				line += " -s " + string(f.Short)
			}
			if c := choices(f); c != nil {
				line += " -x -a '" + strings.Join(c, " ") + "'"
			} else if valued(f) {
				line += " -r -F"
			}
			fmt.Fprintf(&b, "%s -d '%s'\n", line, single(f.Help))
		}
		if c := children(n); c != nil {
			fmt.Fprintf(&b, "complete -c %s -n '%s' -a '%s'\n", app.Name, where, strings.Join(c, " "))
		} else if len(n.Positional) > 0 {
			fmt.Fprintf(&b, "complete -c %s -n '%s' -F\n", app.Name, where)
		}
	}
	return b.String()
}

// single escapes a text between single quotes.
func single(s string) string { return strings.NewReplacer("\\", "\\\\", "'", "\\'").Replace(s) }

// zsh has a function for each command.
func zsh(app *kong.Application) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %s\n", app.Name)
	for _, n := range nodes(app.Node) {
		fmt.Fprintf(&b, "\n%s() {\n", function(n))
		if len(n.Children) == 0 {
			b.WriteString("\t_arguments -s")
			for _, f := range flagsOf(n) {
				b.WriteString(" \\\n\t\t" + zshFlag(f))
			}
			if c := children(n); c != nil {
				fmt.Fprintf(&b, " \\\n\t\t'1:%s:(%s)'", n.Positional[0].Name, strings.Join(c, " "))
			} else if len(n.Positional) > 0 {
				b.WriteString(" \\\n\t\t'*:file:_files'")
			}
			b.WriteString("\n}\n")
			continue
		}
		b.WriteString("\tlocal line state\n\t_arguments -C '1: :->command' '*:: :->rest'\n\tcase $state in\n\tcommand)\n\t\tlocal -a commands=(\n")
		for _, c := range n.Children {
			if !c.Hidden && c.Type == kong.CommandNode {
				fmt.Fprintf(&b, "\t\t\t'%s:%s'\n", c.Name, zshText(c.Help))
			}
		}
		b.WriteString("\t\t)\n\t\t_describe command commands ;;\n\trest)\n\t\tcase $line[1] in\n")
		for _, c := range n.Children {
			if !c.Hidden && c.Type == kong.CommandNode {
				fmt.Fprintf(&b, "\t\t%s) %s ;;\n", c.Name, function(c))
			}
		}
		b.WriteString("\t\tesac ;;\n\tesac\n}\n")
	}
	fmt.Fprintf(&b, "\n_%s \"$@\"\n", app.Name)
	return b.String()
}

func function(n *kong.Node) string { return "_" + strings.ReplaceAll(n.FullPath(), " ", "_") }

// zshFlag is the specification of a flag for _arguments.
func zshFlag(f *kong.Flag) string {
	form := "--" + f.Name
	value := ""
	if valued(f) {
		form += "="
		value = ":" + f.Name + ":_files"
		if c := choices(f); c != nil {
			value = ":" + f.Name + ":(" + strings.Join(c, " ") + ")"
		}
	}
	text := "[" + zshText(f.Help) + "]" + value + "'"
	if f.Short == 0 {
		return "'" + form + text
	}
	short := "-" + string(f.Short)
	return fmt.Sprintf("'(%s --%s)'{%s,%s}'%s", short, f.Name, short, form, text)
}

// zshText escapes a text in brackets or after a colon, between single quotes.
func zshText(s string) string {
	return strings.NewReplacer("'", `'\''`, "[", `\[`, "]", `\]`, ":", `\:`).Replace(s)
}
