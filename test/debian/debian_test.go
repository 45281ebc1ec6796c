package debian

import (
	"strings"
	"testing"
	"time"
)

var releases = []string{"bookworm", "trixie"}

// proxy is one of the two, as a user of Debian has it.
type proxy struct {
	name, url, socket string
	readme, page      string // headings of what to type, in README.md and in its own page
	folder, main      string // of its configuration
	setUp             func(*machine)
}

var both = []proxy{
	{"haproxy", haproxyURL, "pointsman-spoe.socket", "## Attach it to an HAProxy that already runs", "## Quick start: a backend that exists",
		"/etc/haproxy", "/etc/haproxy/haproxy.cfg", (*machine).haproxy},
	{"nginx", nginxURL, "pointsman-nginx.socket", "## Attach it to an nginx that already runs", "## Quick start: an upstream that exists",
		"/etc/nginx", "/etc/nginx/nginx.conf", (*machine).nginx},
}

// follow types what a page says, in which the package takes the place of the sources,
// and the machine's URL that of the example.
func (m *machine) follow(p proxy, file, heading string) {
	m.t.Helper()
	for _, line := range m.page(file, heading) {
		if !strings.HasPrefix(line, "make ") {
			m.run(strings.Replace(line, "http://localhost/v1/chat/completions", p.url, 1))
		}
	}
}

// On a fresh Debian with a proxy that runs, the package and the commands of the README,
// or of the proxy's page, word by word, bring the first decided request; then the agent dies, is upgraded, detached,
// removed and purged, and no request fails.
func TestLife(t *testing.T) {
	for _, release := range releases {
		for _, p := range both {
			t.Run(release+"/"+p.name, func(t *testing.T) { life(t, release, p) })
		}
	}
}

func life(t *testing.T, release string, p proxy) {
	m := boot(t, release)
	m.engines()
	p.setUp(m)
	before := m.sums(p.folder)

	begin := time.Now()
	m.install()
	if out, _ := m.try("systemctl is-active pointsman " + p.socket); out != "inactive\ninactive\n" {
		t.Errorf("the package has started something: %s", out)
	}
	if release == "trixie" {
		m.follow(p, "docs/"+p.name+".md", p.page)
	} else {
		m.follow(p, "README.md", p.readme)
	}
	m.live(p.url)
	took := time.Since(begin)
	t.Logf("from the package to the first decided request: %.1f s", took.Seconds())
	if took > 5*time.Minute {
		t.Errorf("the first decided request took %v, want five minutes or less", took)
	}
	m.run("pointsman status")
	m.run("systemctl status --no-pager pointsman " + p.socket)
	m.run("ls -laR /run/pointsman /etc/pointsman; ls -la /var/lib/haproxy/run/pointsman 2>/dev/null; id pointsman; grep -E 'haproxy|pointsman' /etc/group")
	m.run("pointsman check --" + p.name + "-config " + p.main)
	if _, err := m.try("getent group haproxy"); (err == nil) != (p.name == "haproxy") {
		t.Errorf("with %s alone, the group haproxy: %v", p.name, err)
	}

	m.under(p.url, func() {
		old := m.agent()
		m.run("kill -9 " + old)
		m.restarted(old)
	})
	m.live(p.url)
	m.newer()
	m.under(p.url, func() {
		old := m.agent()
		m.run("apt-get install -y -q ./newer.deb </dev/null")
		m.restarted(old)
	})
	m.live(p.url)
	m.run("journalctl --no-pager -o cat -u pointsman")

	m.under(p.url, func() {
		m.run("pointsman detach " + p.name + " --write")
		m.run("systemctl reload " + p.name)
	})
	if after := m.sums(p.folder); after != before {
		t.Errorf("detached, the files are\n%s\nand were\n%s", after, before)
	}
	m.under(p.url, func() { m.run("apt-get purge -y -q pointsman") })
	if out, _ := m.try("systemctl list-units --all --no-legend 'pointsman*'; ls -d /etc/pointsman /var/lib/pointsman /run/pointsman /etc/systemd/system/*/pointsman* /etc/default/pointsman 2>/dev/null; true"); out != "" {
		t.Errorf("left after the purge:\n%s", out)
	}
	if out := m.run("systemctl --failed --no-legend"); out != "" {
		t.Errorf("failed units: %s", out)
	}
}
