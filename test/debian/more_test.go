package debian

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// One agent serves both proxies; installed before HAProxy, it joins HAProxy's group then.
// Removed while they are still attached, they serve, reload and restart without it.
func TestBothProxies(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			m := boot(t, release)
			m.engines()
			m.run("apt-get install -y -q --no-install-recommends ./pointsman_*.deb")
			if out := m.run("id -nG pointsman"); out != "pointsman\n" {
				t.Errorf("without HAProxy its groups are %s", out)
			}
			m.haproxy()
			m.nginx()
			if out := m.run("id -gn haproxy; id -nG pointsman"); out != "haproxy\npointsman haproxy\n" {
				t.Errorf("groups: %s", out)
			}
			m.run("pointsman attach haproxy --write")
			if out, err := m.try("pointsman attach nginx --write"); err == nil || !strings.Contains(out, "listen.nginx is off: want an address") {
				t.Errorf("without an address for nginx: %v\n%s", err, out)
			}
			m.write("etc/pointsman/pointsman.yaml", "listen: {nginx: 'unix:///run/pointsman/nginx.sock'}\n"+m.read("etc/pointsman/pointsman.yaml"), 0o644)
			m.run("pointsman attach nginx --write")
			m.run("systemctl enable --now pointsman-spoe.socket pointsman-nginx.socket pointsman && systemctl reload haproxy nginx")
			m.live(haproxyURL)
			m.live(nginxURL)
			m.run("pointsman status")
			m.run("systemctl restart pointsman")
			m.live(haproxyURL)
			m.live(nginxURL)
			m.run("systemctl reload pointsman")
			m.live(nginxURL)
			good := m.read("etc/pointsman/pointsman.yaml")
			m.write("etc/pointsman/pointsman.yaml", good+"nonsense: 1\n", 0o644)
			if out, err := m.try("systemctl reload pointsman; journalctl --no-pager -o cat -n 5 -u pointsman; systemctl is-active pointsman"); err != nil || !strings.Contains(out, "Job for pointsman.service failed") || !strings.Contains(out, `unknown key "nonsense"`) {
				t.Errorf("a reload of a file that is refused: %v\n%s", err, out)
			}
			m.write("etc/pointsman/pointsman.yaml", good, 0o644)
			m.live(nginxURL)
			m.run("systemd-analyze security --no-pager pointsman.service | tail -1; ls -la /run/pointsman /var/lib/haproxy/run/pointsman")
			m.under(haproxyURL, func() {
				out := m.run("apt-get remove -y -q pointsman")
				for _, p := range both {
					if !strings.Contains(out, "pointsman detach "+p.name+" --write") {
						t.Errorf("nothing is said of %s", p.name)
					}
				}
				m.run("systemctl reload haproxy nginx && apt-get install -y -q ./pointsman_*.deb </dev/null")
				m.run("systemctl start pointsman-spoe.socket pointsman-nginx.socket pointsman")
			})
			m.live(haproxyURL)
			m.run("apt-get purge -y -q pointsman && systemctl restart haproxy nginx")
			m.serves(haproxyURL)
			m.serves(nginxURL)
		})
	}
}

// With a file of pointsman's own, HAProxy's unit loads it by a drop-in, and keeps its
// other options: those of the unit, or those of /etc/default/haproxy.
func TestOwnFile(t *testing.T) {
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			m := boot(t, release)
			m.engines()
			m.haproxy()
			m.install()
			for _, own := range []string{"", "EXTRAOPTS=\"-S /run/haproxy-master.sock -n 5000\"\n"} {
				m.write("etc/default/haproxy", own, 0o644)
				m.run("systemctl reset-failed haproxy && systemctl restart haproxy") // systemd limits restarts in ten seconds
				command := m.run("tr '\\0' ' ' </proc/$(systemctl show -P MainPID haproxy)/cmdline")
				m.run("pointsman attach haproxy --own-file --write")
				m.run("systemctl enable --now pointsman-spoe.socket pointsman && systemctl daemon-reload && systemctl reset-failed haproxy && systemctl restart haproxy")
				m.live(haproxyURL)
				with := m.run("tr '\\0' ' ' </proc/$(systemctl show -P MainPID haproxy)/cmdline; test -S /run/haproxy-master.sock")
				for word := range strings.FieldsSeq(command + " /etc/pointsman/pointsman.cfg") {
					if !strings.Contains(with, word) {
						t.Errorf("%q lost %s of %q", with, word, command)
					}
				}
				m.run("pointsman check --haproxy-config /etc/haproxy/haproxy.cfg --haproxy-config /etc/pointsman/pointsman.cfg")
				m.run("pointsman detach haproxy --own-file --write && systemctl daemon-reload && systemctl restart haproxy")
				m.serves(haproxyURL)
				if now := m.run("tr '\\0' ' ' </proc/$(systemctl show -P MainPID haproxy)/cmdline"); now != command {
					t.Errorf("detached: %q, before %q", now, command)
				}
			}
		})
	}
}

// The rpm, installed by rpm into a machine that runs, does what the deb does there.
func TestRPM(t *testing.T) {
	m := boot(t, "bookworm")
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	list, err := filepath.Glob(filepath.Join(packages(t), "pointsman-*."+arch+".rpm"))
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	// Its scripts run in the root, but not in the namespaces of its systemd.
	rpm := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("rpm", append([]string{"--root", m.root, "--dbpath", "/var/lib/rpm"}, args...)...).CombinedOutput()
		t.Logf("rpm %v\n%s", args, out)
		if err != nil && args[0] != "-V" { // which fails for any difference
			t.Fatal(err)
		}
		return string(out)
	}
	m.engines()
	m.haproxy()
	rpm("-i", "--nodeps", list[0])
	m.run("systemctl daemon-reload && systemd-tmpfiles --create pointsman.conf")
	if out, _ := m.try("systemctl is-active pointsman pointsman-spoe.socket"); out != "inactive\ninactive\n" {
		t.Errorf("the package has started something: %s", out)
	}
	m.follow(both[0], "README.md", both[0].readme)
	m.live(haproxyURL)
	conf := m.read("etc/pointsman/pointsman.yaml")
	rpm("-U", "--replacepkgs", "--nodeps", list[0])
	if m.read("etc/pointsman/pointsman.yaml") != conf {
		t.Error("another installation has replaced the configuration")
	}
	if out := rpm("-V", "--nodeps", "--noscripts", "--nomtime", "pointsman"); out != "S.5......  c /etc/pointsman/pointsman.yaml\n" {
		t.Errorf("rpm -V: %s", out)
	}
	m.run("pointsman detach haproxy --write && systemctl reload haproxy && systemctl disable --now pointsman-spoe.socket pointsman")
	rpm("-e", "pointsman")
	m.serves(haproxyURL)
	if out := m.run("ls /usr/bin/pointsman /usr/lib/systemd/system/pointsman* /etc/pointsman/pointsman.yaml 2>/dev/null; ls /etc/pointsman"); !strings.Contains(out, "pointsman.yaml.rpmsave") || strings.Contains(out, "/usr") {
		t.Errorf("after rpm -e: %s", out)
	}
}
