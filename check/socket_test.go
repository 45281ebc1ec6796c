package check

import (
	"net"
	"os"
	osuser "os/user"
	"path/filepath"
	"strings"
	"testing"
)

// A socket that the proxy's user may not connect to is a fault.
func TestSocketPermissions(t *testing.T) {
	if _, err := osuser.Lookup("nobody"); err != nil {
		t.Fatal(err) // every Unix has it
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	put(t, filepath.Join(dir, "haproxy.cfg"), "global\n  user daemon\n  user nobody\n  tune.bufsize 131072\ndefaults\n  mode http\n")
	put(t, filepath.Join(dir, "nginx.conf"), "user nobody;\nhttp { server { listen 80; } }\n")
	for mode, want := range map[os.FileMode]bool{0o600: true, 0o666: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		says, _ := checked(t, "listen: {spoe: 'unix://"+path+"'}\nhaproxy: {version: '3.2'}\n"+pools, nil, Options{HAProxyConfig: []string{filepath.Join(dir, "haproxy.cfg")}})
		if strings.Contains(says, "user nobody may not write to it") != want {
			t.Errorf("HAProxy, mode %o: %s", mode, says)
		}
		says, _ = checked(t, "listen: {spoe: off, nginx: 'unix://"+path+"'}\n"+pools, nil, Options{NginxConfig: filepath.Join(dir, "nginx.conf")})
		if strings.Contains(says, "socket "+path+": user nobody may not write to it") != want || want != strings.Contains(says, "set listen.socket_group") {
			t.Errorf("nginx, mode %o: %s", mode, says)
		}
	}
}
