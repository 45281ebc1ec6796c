package main

import (
	"os"

	"pointsman/resolve"
)

type configCmd struct {
	Config string `short:"c" default:"${default_config}" type:"path" help:"Configuration file (${default})."`
}

func (c *configCmd) Run() error {
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
