package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"pointsman/admin/client"
	"pointsman/misuse"
	"pointsman/record"
)

type recordCmd struct {
	Admin string        `default:"${default_admin}" help:"Admin address of the agent (${default})."`
	Out   string        `required:"" help:"New file to write, such as traffic.jsonl.gz. It holds lengths, times and salted hashes; no text, session id or key."`
	For   time.Duration `default:"1h" help:"How long, at most 168h (${default}). Ctrl-C ends it earlier; what was written stays."`
}

func (c *recordCmd) Run() error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(stop)
	return c.run(os.Stdout, stop)
}

func (c *recordCmd) run(w io.Writer, stop <-chan os.Signal) error {
	if !strings.HasSuffix(c.Out, ".gz") {
		return misuse.Errorf("--out: %q, want a file that ends in .jsonl.gz", c.Out)
	}
	if c.For <= 0 || c.For > record.Longest {
		return misuse.Errorf("--for: %v, want more than 0 and at most %gh", c.For, record.Longest.Hours())
	}
	if _, err := os.Stat(filepath.Dir(c.Out)); err != nil {
		return err // before the agent begins
	}
	if _, err := os.Lstat(c.Out); err == nil {
		return fmt.Errorf("%s exists already: want the name of a new file", c.Out)
	}
	stream, err := client.Client(c.Admin).Record(c.For)
	if err != nil {
		return err
	}
	defer stream.Close()
	ended := make(chan struct{})
	defer close(ended)
	interrupted := make(chan struct{})
	go func() {
		select {
		case <-stop:
			close(interrupted)
			stream.Close()
		case <-ended:
		}
	}()
	fmt.Fprintf(w, "recording for %v to %s\n", c.For, c.Out)
	n, err := record.Save(c.Out, stream)
	select {
	case <-interrupted: // the stream was closed
		err = nil
	default:
	}
	switch {
	case n == 0 && err == nil:
		fmt.Fprintln(w, "0 requests recorded: none has ended in that time")
	case n > 0:
		requests := "requests"
		if n == 1 {
			requests = "request"
		}
		fmt.Fprintf(w, "%d %s recorded; try pointsman simulate --trace %s\n", n, requests, c.Out)
	}
	return err
}
