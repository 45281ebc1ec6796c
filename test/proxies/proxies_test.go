package proxies

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestProc starts, reloads and kills each HAProxy and sees it answer, from
// first to last.
func TestProc(t *testing.T) {
	for _, bin := range HAProxies(t) {
		t.Run(bin.Version, func(t *testing.T) {
			port := FreePort(t)
			url := fmt.Sprintf("http://127.0.0.1:%d/", port)
			p := Start(t, bin, fmt.Sprintf(`
defaults
    mode http
    timeout connect 1s
    timeout client 10s
    timeout server 10s
frontend main
    bind 127.0.0.1:%d
    default_backend more
`, port), File{"more.cfg", "backend more\n    mode http\n    http-request return status 204\n"})

			get := func() error {
				res, err := http.Get(url)
				if err != nil {
					return err
				}
				res.Body.Close()
				if res.StatusCode != 204 {
					return fmt.Errorf("status %d", res.StatusCode)
				}
				return nil
			}
			if err := get(); err != nil {
				t.Fatal(err)
			}
			before := p.cur
			p.Reload()
			http.DefaultClient.CloseIdleConnections()
			<-before.done
			if err := get(); err != nil {
				t.Fatalf("after a reload: %v", err)
			}
			p.Kill()
			http.DefaultClient.CloseIdleConnections()
			if get() == nil {
				t.Fatal("it still answers after Kill")
			}
		})
	}
}

// TestCommand sees that each binary says the version it is filed under.
func TestCommand(t *testing.T) {
	for _, bin := range HAProxies(t) {
		out, err := bin.Command("-v").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "version "+bin.Version+".") {
			t.Errorf("HAProxy %s: %v, says %s", bin.Version, err, out)
		}
	}
}

// TestFreePort sees no port given twice.
func TestFreePort(t *testing.T) {
	seen := map[int]bool{}
	for range 100 {
		p := FreePort(t)
		if p <= 0 || seen[p] {
			t.Fatalf("port %d given twice, or none", p)
		}
		seen[p] = true
	}
}
