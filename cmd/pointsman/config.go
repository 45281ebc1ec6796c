package main

import (
	"os"

	"github.com/bytedance/sonic"

	"pointsman/config"
	"pointsman/resolve"
)

type configCmd struct {
	Config string `short:"c" default:"${default_config}" type:"path" help:"Configuration file (${default})."`
	Schema bool   `help:"Print a JSON Schema of the file, for editors."`
}

func (c *configCmd) Run() error {
	if c.Schema {
		b, err := schema()
		if err != nil {
			return err
		}
		_, err = os.Stdout.Write(b)
		return err
	}
	conf, err := resolve.Load(c.Config, resolve.Options{Policies: policies})
	if err != nil {
		return err
	}
	b, err := conf.Write()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(b)
	return err
}

// schema is the JSON Schema of the file.
func schema() ([]byte, error) {
	b, err := sonic.ConfigStd.MarshalIndent(config.Schema(policies.Names(), policies.Defaults), "", "  ")
	return append(b, '\n'), err
}
