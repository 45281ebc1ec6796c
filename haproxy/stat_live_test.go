package haproxy

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"pointsman/test/proxies"
)

// TestStatOfEngines has engines fail HAProxy's checks with texts that its CSV quotes. What
// an engine answers changes nothing in the other columns.
func TestStatOfEngines(t *testing.T) {
	for _, bin := range proxies.HAProxies(t) {
		t.Run(bin.Version, func(t *testing.T) {
			t.Parallel()
			const (
				loading = "Loading the model, please wait"
				quoting = `say "wait", so, "please"`
			)
			socket := filepath.Join(t.TempDir(), "s")
			r1, r2, r3, r4 := engineOf(t, loading), engineOf(t, quoting), engineOf(t, `odd" one`), engineOf(t, "no")
			proxies.Start(t, bin, fmt.Sprintf(`global
    stats socket %s level admin
    description "of \"two\",\nPid: 1\n# pxname"
defaults
    mode http
    timeout connect 5s
    timeout client 5s
    timeout server 5s
backend llama
    option httpchk GET /health
    default-server check inter 100ms fall 1
    server r1 %s
    server r2 %s weight 7
    server r3 %s
    server r4 %s
backend lines
    option httpchk GET /health
    http-check expect status 200 on-error "no\nllama,r5,\"yes\",\r\n\n,"
    default-server check inter 100ms fall 1
    server r1 %[2]s
`, socket, r1, r2, r3, r4))
			var got stat
			eventually(t, "HAProxy has checked the servers", func() bool {
				c, err := net.Dial("unix", socket)
				if err != nil {
					return false
				}
				if got, err = query(t.Context(), c, every); err != nil {
					t.Fatal(err)
				}
				up := 0
				for _, pool := range got.states {
					for _, s := range pool {
						if s.Up {
							up++
						}
					}
				}
				return up == 0
			})
			want := fmt.Sprintf("[{r1 %s 1} {r2 %s 7} {r3 %s 1} {r4 %s 1}] [{r1 %[1]s 1}]", r1, r2, r3, r4)
			type server struct {
				name, address string
				weight        int
			}
			list := map[string][]server{}
			for pool, servers := range got.states {
				for _, s := range servers {
					list[pool] = append(list[pool], server{s.Name, s.Address, s.Weight})
				}
			}
			if text := fmt.Sprint(list["llama"], list["lines"]); text != want {
				t.Errorf("got  %s\nwant %s", text, want)
			}
			if of := got.states["llama"][0].Origin; of == 0 || of != got.states["lines"][0].Origin {
				t.Errorf("the process is %d", of)
			}
		})
	}
}

// engineOf is an engine that answers 503 with a text of its own. It returns its address.
func engineOf(t *testing.T, text string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					fmt.Fprintf(c, "HTTP/1.1 503 %s\r\nContent-Length: 0\r\n\r\n", text)
				}
			}()
		}
	}()
	return l.Addr().String()
}
