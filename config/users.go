package config

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// LocalUsers counts the accounts of people on this machine, but for the one that runs
// this.
func LocalUsers() int {
	b, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return 0
	}
	return people(string(b), os.Getuid())
}

// people counts the accounts in passwd that log in: numbers from 1000 on, with a shell.
func people(passwd string, own int) (n int) {
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) != 7 {
			continue
		}
		id, err := strconv.Atoi(f[2])
		shell := f[6][strings.LastIndexByte(f[6], '/')+1:]
		if err == nil && id >= 1000 && id < 65534 && id != own && shell != "nologin" && shell != "false" {
			n++
		}
	}
	return n
}

// FeedForOthers warns of a feed that so many other users of the machine can connect to;
// "" = they cannot.
func (c *Config) FeedForOthers(users int) string {
	network, _, err := ParseAddress(c.Listen.Feed)
	if err != nil || network != "tcp" || users == 0 {
		return ""
	}
	remedy := "with unix:///run/pointsman/feed.sock only a group can, but HAProxy 3.0 and 3.1 need a port"
	if c.Listen.Nginx != "" {
		remedy = "nginx needs a port"
	}
	return fmt.Sprintf("listen.feed: other users of this machine (%d can log in) can connect to %s and report false load; %s", users, quote(c.Listen.Feed), remedy)
}
