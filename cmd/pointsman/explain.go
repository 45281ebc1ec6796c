package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"pointsman/admin/client"
)

// maxBody bounds the body to explain, in bytes.
const maxBody = 16 << 20

type explainCmd struct {
	Body   string   `arg:"" optional:"" default:"-" help:"File with the request's body; - is standard input."`
	Admin  string   `default:"${default_admin}" help:"Admin address of the agent (${default})."`
	Path   string   `default:"/v1/chat/completions" help:"Path of the request (${default})."`
	Pool   string   `help:"Pool of the request, where the proxy chooses it; by default that of its model."`
	Header []string `short:"H" sep:"none" help:"Header of the request, as 'name: value'; may be repeated."`
	JSON   bool     `help:"Print the answer as JSON."`
}

func (c *explainCmd) Run() error {
	in := io.Reader(os.Stdin)
	if c.Body != "-" {
		f, err := os.Open(c.Body)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	body, err := io.ReadAll(io.LimitReader(in, maxBody))
	if err != nil {
		return err
	}
	if !json.Valid(body) {
		fmt.Fprintln(os.Stderr, "note: the body is not JSON: what it says of model and prompt is used up to where it ends or breaks")
	}
	answer, err := client.Client(c.Admin).Explain(c.Path, c.Pool, c.Header, body)
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := os.Stdout.Write(answer)
		return err
	}
	return client.PrintExplanation(os.Stdout, answer)
}
