package engines

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// llama is a running llama-server.
type llama struct {
	t       testing.TB
	name    string
	address string
	more    []string // arguments
	log     proxies.Buffer
	cmd     *exec.Cmd
	ended   chan struct{}
}

// startLlama starts a llama-server with further arguments. It ends with the test.
// Without the program the test is skipped, and fails with CI=true.
func startLlama(t testing.TB, name string, more ...string) *llama {
	t.Helper()
	if err := models(); err != nil {
		t.Fatal(err)
	}
	l := &llama{t: t, name: name, address: rig.FreeAddress(t), more: more}
	l.up()
	t.Cleanup(func() {
		l.kill()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", name, l.log.String())
		}
	})
	return l
}

// up starts the server and waits until it serves.
func (l *llama) up() {
	l.t.Helper()
	root := filepath.Join(proxies.Cache(), "llama.cpp/usr")
	program := filepath.Join(root, "bin/llama-server")
	if _, err := os.Stat(program); err != nil {
		proxies.Missing(l.t, "%v; test/setup.sh unpacks it", err)
	}
	triplet, loader, backend := "x86_64-linux-gnu", "ld-linux-x86-64.so.2", "libggml-cpu-x64.so"
	if runtime.GOARCH == "arm64" {
		triplet, loader, backend = "aarch64-linux-gnu", "ld-linux-aarch64.so.1", "libggml-cpu-armv8.0_1.so"
	}
	libs := filepath.Join(root, "lib", triplet)
	_, port, err := net.SplitHostPort(l.address)
	if err != nil {
		l.t.Fatal(err)
	}
	l.cmd = exec.Command(filepath.Join(libs, loader), append([]string{
		"--library-path", libs + ":" + libs + "/llama", program, "-m", path("tiny.gguf"), "--host", "127.0.0.1", "--port", port,
		"--metrics", "-np", "4", "-c", "32768", "-t", "1", "--no-warmup", "--offline", "--jinja",
	}, l.more...)...)
	l.cmd.Env = append(os.Environ(), "GGML_BACKEND_PATH="+filepath.Join(libs, "ggml/backends0", backend))
	l.cmd.Stdout, l.cmd.Stderr = &l.log, &l.log
	proxies.EndWithTest(l.cmd, syscall.SIGKILL)
	if err := l.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func(cmd *exec.Cmd) { _ = cmd.Wait(); close(ended) }(l.cmd)
	l.ended = ended
	awaitHealth(l.t, l.name, l.address)
}

// kill ends the server at once.
func (l *llama) kill() {
	l.cmd.Process.Kill()
	<-l.ended
}

// awaitHealth waits until an engine says that it serves.
func awaitHealth(t testing.TB, name, address string) {
	t.Helper()
	rig.Eventually(t, 5*time.Minute, name+" serves", func() (bool, string) {
		resp, err := http.Get("http://" + address + "/health")
		if err != nil {
			return false, err.Error()
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK, resp.Status
	})
}

// TestLlamaCpp has two llama.cpp serve what clients send, and a third embeddings.
func TestLlamaCpp(t *testing.T) {
	rig.OnEach(t, rig.Newest(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		l1, l2 := startLlama(t, "l1", "--alias", rig.Model), startLlama(t, "l2", "--alias", rig.Model)
		em := startLlama(t, "em", "--embeddings", "--pooling", "mean", "--alias", "embedder")
		s := rig.NewSite(t, r, fmt.Sprintf(`pools:
  %s: {models: [%s], policy: {name: kv_aware, timeout: 1s}, replicas: {l1: {address: %q}, l2: {address: %q}}}
  em: {models: [embedder], replicas: {em: {address: %q}}}
`, rig.Pool, rig.Model, l1.address, l2.address, em.address))
		s.Patient()
		s.Start()
		found(t, s, 3, func(g rig.Signal) bool { return g.Engine == "llamacpp" && g.Age < 10 })
		client := rig.NewClient(8, true, false)
		defer client.CloseIdleConnections()

		t.Run("every API", func(t *testing.T) { everyAPI(t, s, client) })
		t.Run("embeddings", func(t *testing.T) {
			a := rig.Call{Path: "/v1/embeddings", Body: []byte(`{"model":"embedder","input":["one text","and another"]}`)}.Do(client, s.Front)
			if a.Status != 200 || bytes.Count(a.Body, []byte(`"embedding":[`)) != 2 {
				t.Errorf("%d %.300s", a.Status, a.Body)
			}
			if st := s.Agent.Settled("em"); st.Outcomes["served"] != 1 {
				t.Errorf("%+v", st)
			}
		})
		t.Run("conversations", func(t *testing.T) {
			w := workload{site: s, client: client, block: 16, predicted: false}
			w.run(t, talks(3, 3, 40))
			w.judge(t)
			if w.cached*10 < w.prompt*4 { // of 1+2+3 parts 1+2 are known
				t.Errorf("%d of %d tokens of the prompts were cached", w.cached, w.prompt)
			}
		})
		t.Run("a client leaves", func(t *testing.T) {
			leave(t, s, func() float64 {
				return sample(t, l1.address, "llamacpp:requests_processing") + sample(t, l2.address, "llamacpp:requests_processing")
			})
		})
		t.Run("an engine dies", func(t *testing.T) {
			broken := begin(t, client, s.Front)
			dies := l1
			rig.Eventually(t, time.Minute, "the stream runs somewhere", func() (bool, string) {
				for _, l := range []*llama{l1, l2} {
					if sample(t, l.address, "llamacpp:requests_processing") > 0 {
						dies = l
						return true, ""
					}
				}
				return false, ""
			})
			dies.kill()
			if a := <-broken; a.Err == nil && bytes.HasSuffix(a.Body, []byte("[DONE]\n\n")) {
				t.Errorf("the stream ends well: %.300s", a.Body)
			}
			before := s.Agent.Settled(rig.Pool).Replica(dies.name).Served
			for range 10 {
				chat(t, s, client, "is anybody there?")
			}
			if p := s.Agent.Settled(rig.Pool); p.Replica(dies.name).Served != before {
				t.Errorf("the dead one has served: %+v", p)
			}
			dies.up()
			s.AwaitState(dies.name, time.Minute, "up")
		})
		s.Idle(s.Agent.Settled(rig.Pool))
	})
}
