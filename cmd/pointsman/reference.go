package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"pointsman/admin/exposition"
	"pointsman/config"
	"pointsman/haproxy"
	"pointsman/manual"
)

type referenceCmd struct {
	Dir string `arg:"" type:"path" help:"Folder."`
}

// Run writes the pages of the documentation that come from the program itself.
func (c *referenceCmd) Run(app *kong.Kong) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	for name, text := range references(app.Model) {
		if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// fromBelow turns links of docs/configuration.md into those of a page in a folder
// below.
var fromBelow = strings.NewReplacer("](policies/)", "](../policies/README.md)", "](#", "](../configuration.md#", "](", "](../")

// references are these pages in Markdown, by the names of their files.
func references(app *kong.Application) map[string]string {
	var keys, metrics, variables strings.Builder
	keys.WriteString("# All keys\n\nThe keys of `pointsman.yaml`, from the program. NAME stands for a name of your choice.\n[Configuration](../configuration.md) explains how they belong together.\n\n| key | default | meaning |\n|---|---|---|\n")
	for _, k := range config.Keys() {
		fmt.Fprintf(&keys, "| `%s` | %s | %s |\n", k.Path, fromBelow.Replace(k.Default), fromBelow.Replace(k.Meaning))
	}
	keys.WriteString("\n## Options of policies\n\n| policy | option | default | meaning |\n|---|---|---|---|\n")
	for _, name := range policies.Names() {
		for _, o := range config.Options(policies.Defaults(name)) {
			fmt.Fprintf(&keys, "| [%s](../policies/%s.md) | `%s` | %s | %s |\n", name, name, o.Path, o.Default, o.Meaning)
		}
	}
	metrics.WriteString("# All metrics\n\nThe metrics of pointsman itself, from the program. [Metrics](../metrics.md) says which to look at, and\nwhat their labels mean.\n\n| metric | type | meaning |\n|---|---|---|\n")
	for _, f := range exposition.Ours() {
		fmt.Fprintf(&metrics, "| `%s` | %s | %s |\n", f.Name, f.Type, f.Help)
	}
	variables.WriteString("# Variables\n\n## HAProxy\n\nAn answer of the agent sets these. Those that do not apply are not set.\n\n| variable | meaning |\n|---|---|\n")
	for _, v := range haproxy.Variables {
		fmt.Fprintf(&variables, "| `%s%s` | %s |\n", haproxy.Prefix, v.Name, v.Meaning)
	}
	variables.WriteString("\n## nginx\n\nThe answer has headers: see [nginx](../nginx.md).\n\n## Environment\n\n")
	for _, s := range notes.Sections {
		if s[0] != "Environment" {
			continue
		}
		for line := range strings.SplitSeq(s[1], "\n") {
			name, meaning, _ := strings.Cut(line, ": ")
			fmt.Fprintf(&variables, "- `%s`: %s\n", name, meaning)
		}
	}
	variables.WriteString("\nThe rest is in [configuration](../configuration.md#environment).\n")
	return map[string]string{
		"commands.md":  "# Commands\n\nThe commands of the program with their options, from the program.\n\n" + manual.Markdown(app, notes),
		"keys.md":      keys.String(),
		"metrics.md":   metrics.String(),
		"variables.md": variables.String(),
	}
}
