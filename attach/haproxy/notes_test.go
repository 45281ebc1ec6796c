package haproxy

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// site is a configuration with a stats socket, and with servers in its backend.
const site = `global
    stats socket /run/haproxy/admin.sock %s
defaults
    mode http
    timeout connect 5s
    timeout client 50s
    timeout server 50s
frontend fe
    bind :80
    default_backend vllm
backend vllm
%s`

func attachSite(t *testing.T, socket, servers, config string) (notes string, err error) {
	t.Helper()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "haproxy.cfg"), fmt.Sprintf(site, socket, servers))
	o := options(filepath.Join(dir, "haproxy.cfg"), dir, "2.6")
	if config != "" {
		put(t, o.Config, config)
	}
	r, err := Attach(o)
	if err != nil {
		return "", err
	}
	return strings.ReplaceAll(strings.Join(r.Notes, "\n"), dir, "DIR"), nil
}

// TestNotesASocketOfRoot: HAProxy makes its sockets as root, so that one without a group,
// as in Debian's own configuration, is of no use to the agent.
func TestNotesASocketOfRoot(t *testing.T) {
	const servers, note = "    server r1 10.0.0.1:8000\n", "DIR/haproxy.cfg:2: only root can use this stats socket: add \"group haproxy\" to it"
	for socket, want := range map[string]bool{
		"mode 660 level admin":               true,
		"level admin":                        true,
		"mode 660 group haproxy level admin": false,
		"mode 660 gid 105 level admin":       false,
		"user haproxy level admin":           false,
		"mode 666 level admin":               false,
	} {
		for _, config := range []string{"", "haproxy: {runtime_api: unix:///run/haproxy/admin.sock}\npools: {vllm: {replicas: {r1: {address: 10.0.0.1:8000}}}}\n"} {
			notes, err := attachSite(t, socket, servers, config)
			if err != nil || strings.Contains(notes, note) != want {
				t.Errorf("%s: %v\n%s", socket, err, notes)
			}
		}
	}
	if notes, err := attachSite(t, "level admin", servers, "pools: {vllm: {replicas: {r1: {address: 10.0.0.1:8000}}}}\n"); err != nil || notes != "" {
		t.Errorf("a runtime API that is not used: %v %s", err, notes)
	}
}

// TestNotesWhatOneSideHas: servers that are no replicas, and replicas that are no servers.
func TestNotesWhatOneSideHas(t *testing.T) {
	notes, err := attachSite(t, "group haproxy level admin", "    server r1 10.0.0.1:8000 check\n    server r3 10.0.0.3:8000 check\n    server r4 10.0.0.4:8000 check backup\n",
		"pools: {vllm: {replicas: {r1: {address: 10.0.0.9:8000}, r2: {address: 10.0.0.2:8000}}}}\n")
	want := `DIR/haproxy.cfg:11: backend vllm has no server r2 at 10.0.0.2:8000, which is a replica in DIR/out/pointsman.yaml: add it here, or HAProxy gives the requests decided for it to others
DIR/haproxy.cfg:12: server r1 is at 10.0.0.1:8000, and in DIR/out/pointsman.yaml at 10.0.0.9:8000
DIR/haproxy.cfg:13: server r3 is no replica of pool vllm in DIR/out/pointsman.yaml: add it there`
	if err != nil || notes != want {
		t.Errorf("%v\n%s", err, notes)
	}
}

// TestTwoServersOfOneEngine: the error names the user's line, not one of a file that is not
// written.
func TestTwoServersOfOneEngine(t *testing.T) {
	_, err := attachSite(t, "group haproxy level admin", "    server r1 10.0.0.1:8000\n    server r2 10.0.0.1:8000\n", "")
	if err == nil || !strings.HasSuffix(err.Error(), "haproxy.cfg:13: servers r1 and r2 of backend vllm are both at 10.0.0.1:8000, and a replica has one name: remove one of them") {
		t.Error(err)
	}
}
