package proxies

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestNginx starts and reloads each nginx, kills its workers, and sees it answer.
func TestNginx(t *testing.T) {
	for _, bin := range Nginxes(t) {
		t.Run(bin.Version, func(t *testing.T) {
			port := FreePort(t)
			n := StartNginx(t, bin, fmt.Sprintf("pid /run/nginx.pid;\nevents {}\nhttp {\n    include more.conf;\n}\n# listen 127.0.0.1:%[1]d\n", port),
				File{"more.conf", fmt.Sprintf("server { listen 127.0.0.1:%d; return 204; }", port)})
			get := func() (err error) {
				for range 200 { // new workers listen a moment later
					var res *http.Response
					if res, err = http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port)); err == nil {
						res.Body.Close()
						if res.StatusCode != 204 {
							return fmt.Errorf("status %d", res.StatusCode)
						}
						return nil
					}
					time.Sleep(5 * time.Millisecond)
				}
				return err
			}
			if err := get(); err != nil {
				t.Fatal(err)
			}
			before := n.Workers()
			n.Reload()
			http.DefaultClient.CloseIdleConnections()
			if err := get(); err != nil {
				t.Fatalf("after a reload: %v", err)
			}
			n.KillWorkers()
			http.DefaultClient.CloseIdleConnections()
			if err := get(); err != nil {
				t.Fatalf("after its workers were killed: %v", err)
			}
			for _, w := range n.Workers() {
				if slices.Contains(before, w) {
					t.Errorf("worker %s is still there", w)
				}
			}
			if out, err := CheckNginx(t, bin, "events {}\nhttp {\n    nonsense;\n}\n"); err == nil || !strings.Contains(out, "nonsense") {
				t.Errorf("nonsense is accepted: %s", out)
			}
			if out, err := CheckNginx(t, bin, "events {}\nhttp {\n}\n"); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
