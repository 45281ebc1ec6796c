package main

import (
	"os"

	"pointsman/admin/client"
)

type usageCmd struct {
	Admin string `default:"${default_admin}" help:"Admin address of the agent (${default})."`
}

func (c *usageCmd) Run() error {
	b, err := client.Client(c.Admin).Usage()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(b)
	return err
}
