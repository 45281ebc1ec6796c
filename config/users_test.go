package config

import (
	"strings"
	"testing"
)

// TestFeedBesideOtherUsers: a feed on a port is warned of where other people log in.
func TestFeedBesideOtherUsers(t *testing.T) {
	const passwd = "root:x:0:0:root:/root:/bin/bash\nsync:x:4:65534:sync:/bin:/bin/sync\n" +
		"nobody:x:65534:65534::/:/usr/sbin/nologin\nann:x:1000:1000:,,,:/home/ann:/bin/bash\nrobot:x:1001:1001::/:/usr/sbin/nologin\nbroken\njoe:x:1002:1002::/home/joe:\n"
	if n, own := people(passwd, 0), people(passwd, 1000); n != 2 || own != 1 {
		t.Errorf("%d, and %d beside ann, want 2 and 1", n, own)
	}
	for listen, want := range map[string]string{
		"": "(2 can log in) can connect to \"tcp://127.0.0.1:9901\"",
		"listen: {spoe: off, nginx: 'unix:///a/b'}\n": "nginx needs a port",
		"listen: {feed: 'unix:///run/feed'}\n":        "",
		"listen: {feed: off}\n":                       "",
	} {
		c := parse(t, listen+"pools: {p: {models: [m], replicas: {r: {address: 'h:1'}}}}\n")
		got := c.FeedForOthers(2)
		if !strings.Contains(got, want) || want == "" && got != "" || c.FeedForOthers(0) != "" {
			t.Errorf("%q: %q", listen, got)
		}
	}
}
