package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"

	"pointsman/config"
	"pointsman/manual"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (c *completionCmd) Run(app *kong.Kong) error {
	_, err := fmt.Print(manual.Complete(app.Model, c.Shell))
	return err
}

type manCmd struct {
	Dir string `arg:"" type:"path" help:"Folder."`
}

// Run writes the man pages, for those who make packages.
func (c *manCmd) Run(app *kong.Kong) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	for _, p := range append(manual.Man(app.Model, notes), configurationFile().Page()) {
		if err := os.WriteFile(filepath.Join(c.Dir, p.Name), []byte(p.Text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// notes are what the first man page says of the whole.
var notes = manual.Notes{Version: version, Sections: [][2]string{
	{"Description", "pointsman tells HAProxy, over SPOE, or nginx which replica of an LLM should serve a request, by load, by what each replica has cached, and by the request's class. The proxy streams to the replica itself, and goes on by itself when the agent is away."},
	{"Exit status", "0: no faults.\n1: faults, which are printed, and what another try may mend: a file that cannot be read, an address in use, an agent that does not answer.\n2: wrong use of a command: an unknown flag, or a value that is wrong, does not fit the others, or names nothing that is there."},
	{"Environment", "POINTSMAN_SESSION_HEADER: headers that carry a session id, separated by commas; overrides session.headers of the configuration.\nRAY_SERVE_SESSION_ID_HEADER_KEY: the same, where neither that nor the configuration names any."},
	{"Files", "/etc/pointsman/pointsman.yaml: the configuration. `pointsman config --schema` prints a JSON Schema of it.\n/etc/default/pointsman: the environment of pointsman.service."},
	{"See also", "pointsman.yaml(5), haproxy(1), nginx(8)"},
}}

// configurationFile is the man page of the configuration.
func configurationFile() manual.File {
	f := manual.File{
		Name: "pointsman.yaml", Help: "configuration of pointsman.", Version: version,
		Text: []string{
			"One YAML file, by default /etc/pointsman/pointsman.yaml. Unknown keys and bad values are refused, all at once, each with its file, line and column.",
			"Durations and sizes need a unit: 250ms, 10m, 128KiB. In the keys below, NAME stands for a name of your choice.",
			"pointsman check proves the file, pointsman config prints what is in force, with all defaults, and pointsman config --schema prints a JSON Schema of it. systemctl reload pointsman applies a changed file.",
		},
		Sections: [][2]string{
			{"Example", "pools: {llama: {replicas: {r1: {address: 10.0.0.1:8000}, r2: {address: 10.0.0.2:8000}}}}"},
			{"See also", "pointsman(1), pointsman-check(1), pointsman-config(1)"},
		},
	}
	for _, k := range config.Keys() {
		f.Keys = append(f.Keys, manual.Entry{Path: k.Path, Default: config.Plain(k.Default), Meaning: config.Plain(k.Meaning)})
	}
	return f
}
