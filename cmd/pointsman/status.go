package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"pointsman/admin/client"
	"pointsman/misuse"
)

type statusCmd struct {
	Admin string        `default:"${default_admin}" help:"Admin address of the agent (${default})."`
	Every time.Duration `help:"Refresh the table this often, until interrupted; by default 1s on a terminal, else print once."`
	Once  bool          `help:"Print once, on a terminal too."`
	JSON  bool          `help:"Print the answer as JSON, once."`

	Signals bool `help:"Show what the engines report, and how old that is."`
}

func (c *statusCmd) Run() error {
	if c.Every < 0 {
		return misuse.Errorf("--every: %v, want 0s or more", c.Every)
	}
	terminal := isTerminal(os.Stdout)
	switch {
	case c.JSON:
		b, err := c.ask()
		if err != nil {
			return err
		}
		_, err = os.Stdout.Write(b)
		return err
	case c.Once, c.Every == 0 && !terminal:
		text, err := c.text()
		fmt.Print(text)
		return err
	case c.Every == 0:
		c.Every = time.Second
	}
	for {
		text, err := c.text()
		if err != nil {
			text += err.Error() + "\n" // the agent may come back
		}
		if terminal {
			fmt.Print("\x1b[H\x1b[2J")
		}
		fmt.Print(time.Now().Format("15:04:05  "), text)
		time.Sleep(c.Every)
	}
}

func (c *statusCmd) ask() ([]byte, error) {
	if c.Signals {
		return client.Client(c.Admin).Signals()
	}
	return client.Client(c.Admin).Status()
}

func (c *statusCmd) text() (string, error) {
	answer, err := c.ask()
	if err != nil {
		return "", err
	}
	write := client.PrintStatus
	if c.Signals {
		write = client.PrintSignals
	}
	var b strings.Builder
	err = write(&b, answer)
	return b.String(), err
}

// isTerminal reports whether f is a terminal.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
