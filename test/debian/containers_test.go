package debian

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/bytedance/sonic"
	"go.yaml.in/yaml/v3"
)

// service is what compose.yaml says of a container, as far as systemd can run it.
type service struct {
	Image       string
	Command     []string
	Volumes     []string
	Environment map[string]string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
	DependsOn   []string `yaml:"depends_on"`
}

// unit is a line of shell that runs the service as systemd confines it: in its own root,
// as its user, with its folders.
func (s *service) unit(name, root, user string, program []string) string {
	args := []string{"systemd-run", "-q", "--unit=" + name, "-p", "User=" + user, "-p", "RuntimeDirectory=" + name}
	if root != "" {
		args = append(args, "-p", "RootDirectory="+root, "-p", "BindReadOnlyPaths=/etc/hosts")
	}
	if s.ReadOnly {
		args = append(args, "-p", "ProtectSystem=strict")
	}
	if strings.Join(s.CapDrop, "") == "ALL" {
		args = append(args, "-p", "CapabilityBoundingSet=")
	}
	if strings.Join(s.SecurityOpt, "") == "no-new-privileges:true" {
		args = append(args, "-p", "NoNewPrivileges=yes")
	}
	for key, value := range s.Environment {
		args = append(args, "-E", key+"="+value)
	}
	for _, v := range s.Volumes {
		from, to, _ := strings.Cut(v, ":")
		if bare, ok := strings.CutSuffix(to, ":ro"); ok {
			args = append(args, "-p", "BindReadOnlyPaths=/srv/compose/"+from+":"+bare)
		} else {
			args = append(args, "-p", "BindPaths=/srv/volumes/"+from+":"+to, "-p", "ReadWritePaths="+to)
		}
	}
	return "'" + strings.Join(append(append(args, program...), s.Command...), "' '") + "'"
}

// image unpacks the only layer of our image below a folder of the machine, and returns
// what it runs, and as whom.
func (m *machine) image(folder string) (entry []string, user string) {
	m.t.Helper()
	dir := filepath.Join(packages(m.t), "image")
	type descriptor struct {
		Digest   string
		Platform struct{ Architecture string }
	}
	read := func(path string, into any) {
		m.t.Helper()
		text, err := os.ReadFile(path)
		if err == nil {
			err = sonic.Unmarshal(text, into)
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
	blob := func(d descriptor) string {
		return filepath.Join(dir, "blobs", strings.Replace(d.Digest, ":", "/", 1))
	}
	var index struct{ Manifests []descriptor }
	read(filepath.Join(dir, "index.json"), &index)
	read(blob(index.Manifests[0]), &index)
	for _, one := range index.Manifests {
		if one.Platform.Architecture != runtime.GOARCH {
			continue
		}
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		var config struct {
			Config struct {
				User       string
				Entrypoint []string
			}
		}
		read(blob(one), &manifest)
		read(blob(manifest.Config), &config)
		to := filepath.Join(m.root, folder)
		if err := os.MkdirAll(to, 0o755); err != nil {
			m.t.Fatal(err)
		}
		if out, err := exec.Command("tar", "-xzpf", blob(manifest.Layers[0]), "-C", to).CombinedOutput(); err != nil {
			m.t.Fatalf("%v: %s", err, out)
		}
		user, _, _ = strings.Cut(config.Config.User, ":")
		return config.Config.Entrypoint, user
	}
	m.t.Fatal("no image for this machine")
	return nil, ""
}

// The compose file, without a daemon for containers: the image's own root, with the user,
// command, environment and folders that the file says, beside an HAProxy that gets the
// folder of its official image. The configuration is made by the file's own comment.
func TestCompose(t *testing.T) {
	text, err := os.ReadFile("../../packaging/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Services map[string]*service }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	agent, proxy := file.Services["pointsman"], file.Services["haproxy"]
	var says strings.Builder // the part of pointsman.yaml in the comment
	for _, line := range regexp.MustCompile(`(?m)^#   (\w+: .*\n)`).FindAllSubmatch(text, -1) {
		says.Write(line[1])
	}
	render := regexp.MustCompile(`(?m)^#   (pointsman render haproxy .*)$`).FindSubmatch(text)
	if agent == nil || proxy == nil || says.Len() == 0 || render == nil || strings.Join(proxy.DependsOn, "") != "pointsman" {
		t.Fatalf("not as this test knows it:\n%s", text)
	}

	m := boot(t, "trixie")
	m.engines()
	m.run("apt-get install -y -qq --no-install-recommends haproxy >/dev/null && systemctl disable -q --now haproxy && echo 127.0.0.1 pointsman >>/etc/hosts")
	entry, user := m.image("srv/image")
	m.write("srv/compose/pointsman.yaml", says.String()+"pools: {llama: {models: [llama], replicas: {r1: {address: '127.0.0.1:8101'}, r2: {address: '127.0.0.1:8102'}}}}\n", 0o644)
	m.run("useradd --system --no-create-home --uid " + user + " image") // systemd wants a name
	// A new volume belongs to whom the image's folder belongs to.
	m.run("mkdir -p /srv/volumes /usr/local/etc/haproxy && cp -a /srv/image/var/lib/pointsman /srv/volumes/state")
	m.run("ln -s /opt/engine/pointsman /usr/local/bin/pointsman && mkdir /etc/pointsman && ln -s /srv/compose/pointsman.yaml /etc/pointsman/")
	// The machine's HAProxy stands in for that of the image, which is newer.
	m.run("cd /srv/compose && " + regexp.MustCompile(`--version \S+`).ReplaceAllString(string(render[1]), "--version 3.0"))
	m.run(agent.unit("c-pointsman", "/srv/image", user, entry))
	m.run(proxy.unit("c-haproxy", "", "haproxy", []string{"/usr/sbin/haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"}))
	m.serves(haproxyURL)
	m.live(haproxyURL)
	if out := m.run("ps -o uid:1,args -C pointsman | grep ' serve '"); !strings.HasPrefix(out, user+" ") || !strings.Contains(out, "--log-format json") {
		t.Errorf("it runs as %s", out)
	}
	m.run("systemctl stop c-pointsman && ls -l /srv/volumes/state | grep state")
	m.under(haproxyURL, func() {})
}

// The role installs, attaches and starts on a machine with HAProxy and one with nginx; a
// second run changes nothing.
func TestAnsible(t *testing.T) {
	roles, err := filepath.Abs("../../packaging/ansible/roles")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range both {
		t.Run(p.name, func(t *testing.T) {
			m := boot(t, "trixie")
			m.engines()
			p.setUp(m)
			m.run("apt-get install -y -qq --no-install-recommends python3 python3-apt >/dev/null")
			deb, err := filepath.Glob(filepath.Join(packages(t), "pointsman_*_"+runtime.GOARCH+".deb"))
			if err != nil || len(deb) != 1 {
				t.Fatal(deb, err)
			}
			// In place of ssh: its last argument is what to run over there.
			dir := t.TempDir()
			ssh := filepath.Join(dir, "ssh")
			script := fmt.Sprintf("#!/bin/sh\nfor last; do :; done\nexec nsenter --target %s --all -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 sh -c \"$last\"\n", m.leader)
			if err := os.WriteFile(ssh, []byte(script), 0o755); err != nil { //nolint:gosec // a program
				t.Fatal(err)
			}
			inventory := filepath.Join(dir, "hosts")
			line := "[proxies]\nmachine ansible_user=root ansible_ssh_executable=" + ssh + " ansible_ssh_transfer_method=piped ansible_python_interpreter=/usr/bin/python3\n"
			if err := os.WriteFile(inventory, []byte(line), 0o600); err != nil {
				t.Fatal(err)
			}
			play := func() string {
				t.Helper()
				cmd := exec.Command("ansible-playbook", "-i", inventory, "-e", "pointsman_package="+deb[0], "-e", "pointsman_proxy="+p.name, "../../packaging/ansible/example.yml")
				cmd.Env = append(os.Environ(), "HOME="+dir, "ANSIBLE_ROLES_PATH="+roles, "LC_ALL=C.UTF-8")
				out, err := cmd.CombinedOutput()
				t.Logf("%s", out)
				if err != nil {
					t.Fatal(err)
				}
				return string(out)
			}
			play()
			m.live(p.url)
			if out := play(); !strings.Contains(out, "changed=0 ") {
				t.Error("a second run changes something")
			}
			m.live(p.url)
		})
	}
}
