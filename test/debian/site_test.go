package debian

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// engineUnit runs a fake engine, which is no part of the package under test.
const engineUnit = `[Service]
ExecStart=/opt/engine/pointsman engine --listen 127.0.0.1:%i --name e%i --model llama --speed 10
[Install]
WantedBy=multi-user.target
`

// haproxyUser comes after Debian's own haproxy.cfg: what runs before pointsman comes.
const haproxyUser = `
frontend api
	bind :8080
	default_backend be_llm

backend be_llm
	balance leastconn
	option httpchk GET /health
	server vllm1 127.0.0.1:8101 check
	server vllm2 127.0.0.1:8102 check
`

// nginxUser is a file in conf.d, likewise.
const nginxUser = `upstream vllm {
	least_conn;
	server 127.0.0.1:8101;
	server 127.0.0.1:8102;
}
server {
	listen 8081;
	location /v1/ {
		proxy_pass http://vllm;
		proxy_http_version 1.1;
		proxy_buffering off;
		proxy_read_timeout 600s;
	}
}
`

const (
	haproxyURL = "http://127.0.0.1:8080/v1/chat/completions"
	nginxURL   = "http://127.0.0.1:8081/v1/chat/completions"
)

// engines starts two fake engines.
func (m *machine) engines() {
	m.t.Helper()
	m.write("etc/systemd/system/engine@.service", engineUnit, 0o644)
	m.run("systemctl daemon-reload && systemctl enable --now -q engine@8101 engine@8102")
}

// haproxy installs Debian's HAProxy and has it serve the engines.
func (m *machine) haproxy() {
	m.t.Helper()
	m.run("apt-get install -y -qq --no-install-recommends haproxy >/dev/null")
	m.write("etc/haproxy/haproxy.cfg", m.read("etc/haproxy/haproxy.cfg")+haproxyUser, 0o644)
	m.run("systemctl restart haproxy")
	m.serves(haproxyURL)
}

// nginx installs Debian's nginx and has it serve the engines.
func (m *machine) nginx() {
	m.t.Helper()
	m.run("apt-get install -y -qq --no-install-recommends nginx >/dev/null")
	m.write("etc/nginx/conf.d/llm.conf", nginxUser, 0o644)
	m.run("systemctl restart nginx")
	m.serves(nginxURL)
}

// serves waits until a URL is served.
func (m *machine) serves(url string) {
	m.t.Helper()
	m.await(url, func() bool {
		out, _ := m.try(ask(url))
		return out == "200\n"
	})
}

// ask is a request that prints its status.
func ask(url string) string {
	return `curl -s -m 20 -o /dev/null -w '%{http_code}\n' -d '{"model": "llama", "max_tokens": 4, "messages": [{"role": "user", "content": "Say OK."}]}' ` + url
}

// under runs something while three clients send requests, one after another, and fails
// when one of these is not served.
func (m *machine) under(url string, during func()) {
	m.t.Helper()
	m.write("srv/load", "while [ ! -e /srv/stop ]; do "+ask(url)+" >>/srv/codes; done\n", 0o755)
	m.run("rm -f /srv/codes /srv/stop; for i in 1 2 3; do systemd-run -q --unit=load$i bash /srv/load; done")
	count := func() int {
		text, _ := os.ReadFile(m.root + "/srv/codes")
		return strings.Count(string(text), "\n")
	}
	m.await("requests", func() bool { return count() > 20 })
	during()
	after := count() + 30
	m.await("requests", func() bool { return count() > after })
	m.run("touch /srv/stop; while systemctl -q is-active load1 load2 load3; do sleep 0.1; done; systemctl reset-failed 'load*' 2>/dev/null || true")
	if out := m.run("sort /srv/codes | uniq -c"); !regexp.MustCompile(`^ *\d+ 200\n$`).MatchString(out) {
		m.t.Errorf("not every request was served:\n%s", out)
	}
}

// agent is the pid of the agent that runs.
func (m *machine) agent() string {
	m.t.Helper()
	out, _ := m.try("systemctl show -P MainPID pointsman")
	return strings.TrimSpace(out)
}

// restarted waits for another agent than one that ran.
func (m *machine) restarted(old string) {
	m.t.Helper()
	m.await("new agent", func() bool {
		out, _ := m.try("systemctl is-active pointsman")
		now := m.agent()
		return now != old && now != "0" && out == "active\n"
	})
}

// page is the shell commands of a page below a heading.
func (m *machine) page(file, heading string) []string {
	m.t.Helper()
	text, err := os.ReadFile("../../" + file)
	if err != nil {
		m.t.Fatal(err)
	}
	_, part, ok := strings.Cut(string(text), "\n"+heading+"\n")
	if !ok {
		m.t.Fatalf("%s: no %s", file, heading)
	}
	if end := regexp.MustCompile(`(?m)^## `).FindStringIndex(part); end != nil {
		part = part[:end[0]]
	}
	var lines []string
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatch(part, -1) {
		for line := range strings.Lines(block[1]) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) == 0 {
		m.t.Fatalf("%s, %s: no commands", file, heading)
	}
	return lines
}

// install installs the package as docs/install.md says.
func (m *machine) install() {
	m.t.Helper()
	for _, line := range m.page("docs/install.md", "## Debian and Ubuntu") {
		m.run(strings.Replace(line, "_VERSION_", "_*_", 1))
	}
}

// newer puts the same package with a later version into the machine, whose sample
// of a configuration and whose defaults have changed.
func (m *machine) newer() {
	m.t.Helper()
	m.run(`rm -rf tree && dpkg-deb -R pointsman_*_*.deb tree && sed -i 's/^Version: .*/Version: 999.0/' tree/DEBIAN/control &&
echo '# a later sample' >>tree/usr/share/pointsman/pointsman.yaml && dpkg-deb -Zgzip -z1 -b tree newer.deb >/dev/null && rm -rf tree`)
}

// live has check --live see every step. nginx does not ask for two seconds after an agent
// that failed, and the workers from before a reload do not ask at all.
func (m *machine) live(url string) {
	m.t.Helper()
	m.await("decision", func() bool {
		out, _ := m.try("pointsman check --live " + url)
		return !strings.Contains(out, "asked             NO")
	})
	out := m.run("pointsman check --live " + url)
	for _, word := range []string{"asked", "decided", "reported"} {
		if !strings.Contains(out, word) {
			m.t.Errorf("check --live says nothing of %q:\n%s", word, out)
		}
	}
}

// sums are the checksums of the files below folders.
func (m *machine) sums(folders ...string) string {
	m.t.Helper()
	return m.run(fmt.Sprintf("find %s -type f -exec sha256sum {} + | sort", strings.Join(folders, " ")))
}
