package debian

import (
	"strings"
	"testing"
	"time"
)

// attachBoth installs both proxies and the package, and attaches it to both.
func attachBoth(t *testing.T, release string) *machine {
	t.Helper()
	m := boot(t, release)
	m.engines()
	m.haproxy()
	m.nginx()
	m.run("apt-get install -y -q --no-install-recommends ./pointsman_*.deb && pointsman attach haproxy --write")
	m.write("etc/pointsman/pointsman.yaml", "listen: {nginx: 'unix:///run/pointsman/nginx.sock'}\n"+m.read("etc/pointsman/pointsman.yaml"), 0o644)
	m.run("pointsman attach nginx --write && systemctl enable --now pointsman-spoe.socket pointsman-nginx.socket pointsman && systemctl reload haproxy nginx")
	m.live(haproxyURL)
	m.live(nginxURL)
	return m
}

// After a reboot, and in whichever order the parts start, both proxies ask again. What
// the agent has learned is there.
func TestReboot(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			m := attachBoth(t, release)
			m.reboot()
			m.serves(haproxyURL)
			m.live(haproxyURL)
			m.live(nginxURL)
			if out := m.run("pointsman status"); !strings.Contains(out, "restored") {
				t.Errorf("status says nothing of what was restored:\n%s", out)
			}
			for _, order := range []string{
				"systemctl start pointsman; systemctl start haproxy nginx",
				"systemctl start haproxy nginx; systemctl start pointsman",
				"systemctl start pointsman-spoe.socket pointsman-nginx.socket; systemctl start haproxy nginx; systemctl start pointsman",
				"systemctl start pointsman-nginx.socket; systemctl start nginx haproxy; systemctl start pointsman-spoe.socket; systemctl start pointsman",
			} {
				m.run("systemctl stop haproxy nginx pointsman && systemctl reset-failed")
				m.run(order)
				m.live(haproxyURL)
				m.live(nginxURL)
			}
			if out := m.run("systemctl --failed --no-legend"); out != "" {
				t.Errorf("failed units: %s", out)
			}
		})
	}
}

// An agent whose configuration is refused is not started again and again: its unit
// fails with a code of its own, its sockets close, and the proxies serve. The file
// mended, one command brings everything back.
func TestRefused(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			m := attachBoth(t, release)
			good := m.read("etc/pointsman/pointsman.yaml")
			m.write("etc/pointsman/pointsman.yaml", good+"nonsense: 1\n", 0o644)
			m.under(haproxyURL, func() {
				if out, err := m.try("systemctl restart pointsman"); err == nil {
					t.Errorf("a file that is refused was taken: %s", out)
				}
				time.Sleep(5 * time.Second) // ten starts, at the pace of those after a crash
				const want = "ActiveState=failed\nExecMainStatus=78\nNRestarts=0\n"
				if out := m.run("systemctl show -p ExecMainStatus -p NRestarts -p ActiveState pointsman | sort"); out != want {
					t.Errorf("the unit:\n%s", out)
				}
				if out := m.run("journalctl --no-pager -o cat -u pointsman | grep -c 'unknown key \"nonsense\"'"); out != "1\n" {
					t.Errorf("the file was refused %s times", out)
				}
				if out, _ := m.try("systemctl is-active pointsman-spoe.socket pointsman-nginx.socket"); out != "inactive\ninactive\n" {
					t.Errorf("the sockets: %s", out)
				}
			})
			m.serves(nginxURL)
			m.write("etc/pointsman/pointsman.yaml", good, 0o644)
			m.run("systemctl restart pointsman")
			m.live(haproxyURL)
			m.live(nginxURL)
		})
	}
}

// Without socket units the agent makes its sockets itself, and HAProxy's group may write
// to them; a group that its user is not in is refused by name.
func TestOwnSockets(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			m := boot(t, release)
			m.run("apt-get install -y -qq --no-install-recommends haproxy >/dev/null && apt-get install -y -q --no-install-recommends ./pointsman_*.deb")
			conf := "pools: {llama: {replicas: {r1: {address: '127.0.0.1:8101'}}}}\n"
			m.write("etc/pointsman/pointsman.yaml", conf+"listen: {feed: 'unix:///run/pointsman/feed.sock'}\n", 0o644)
			m.run("systemctl start pointsman")
			if out := m.run("stat -c '%U %G %a %n' /run/pointsman/spoe.sock /run/pointsman/feed.sock"); out != "pointsman haproxy 660 /run/pointsman/spoe.sock\npointsman haproxy 660 /run/pointsman/feed.sock\n" {
				t.Errorf("its sockets are\n%s", out)
			}
			m.run("systemctl stop pointsman && usermod -aG www-data pointsman")
			m.write("etc/pointsman/pointsman.yaml", conf+"listen: {spoe: off, nginx: 'unix:///run/pointsman/nginx.sock', socket_group: www-data}\n", 0o644)
			m.run("systemctl start pointsman")
			if out := m.run("stat -c '%G %a' /run/pointsman/nginx.sock"); out != "www-data 660\n" {
				t.Errorf("nginx's socket is %s", out)
			}
			m.run("systemctl stop pointsman && gpasswd -d pointsman www-data")
			if out, err := m.try("systemctl start pointsman; systemctl stop pointsman; journalctl --no-pager -o cat -u pointsman"); !strings.Contains(out, "the agent's user must be a member") {
				t.Errorf("a group of others: %v\n%s", err, out)
			}
		})
	}
}
