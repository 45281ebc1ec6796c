package engines

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// launcher is testdata/serve.py, which starts the servers.
type launcher struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	output *bufio.Reader
	log    proxies.Buffer
}

// vllm is a vLLM on one CPU.
type vllm struct {
	name, address  string
	events, replay int // ports
	ranks          int // of data parallelism; 0 = it has none
	args           []string
	pid            int
}

// fleet are the servers, which all tests share: importing and starting them takes the
// longest.
var fleet struct {
	*launcher
	list []*vllm // two with adapters, and one for embeddings
}

// Sizes of their caches.
const (
	vllmBlock  = 32 // tokens
	vllmBlocks = 800
)

// vllms starts the fleet.
func vllms(t *testing.T) (v1, v2, embedder *vllm) {
	t.Helper()
	prepareVLLM(t)
	if fleet.list == nil {
		for _, name := range []string{"v1", "v2", "embedder"} {
			v := &vllm{name: name, address: rig.FreeAddress(t), events: proxies.FreePort(t), replay: proxies.FreePort(t)}
			v.args = v.arguments()
			fleet.list = append(fleet.list, v)
		}
	}
	for _, v := range fleet.list {
		if !v.serves() {
			v.start(t)
		}
	}
	for _, v := range fleet.list {
		awaitHealth(t, v.name, v.address)
	}
	logFailed(t, fleet.list...)
	return fleet.list[0], fleet.list[1], fleet.list[2]
}

// prepareVLLM writes the models and starts the launcher. Without POINTSMAN_ENGINES=1 the
// test is skipped.
func prepareVLLM(t *testing.T) {
	t.Helper()
	if !withVLLM {
		t.Skip("`make engines` runs this")
	}
	if err := models(); err != nil {
		t.Fatal(err)
	}
	if fleet.launcher == nil {
		fleet.launcher = launch(t)
	}
}

// logFailed shows what the servers have written if the test fails.
func logFailed(t *testing.T, list ...*vllm) {
	t.Cleanup(func() {
		if t.Failed() {
			for _, v := range list {
				t.Logf("%s wrote at last:\n%s", v.name, v.tail())
			}
		}
	})
}

// ranked starts a server with two ranks, which only one test needs.
func ranked(t *testing.T) *vllm {
	t.Helper()
	prepareVLLM(t)
	const ranks = 2
	ports := proxies.FreePorts(t, 2*ranks)
	v := &vllm{name: "ranked", address: rig.FreeAddress(t), events: ports, replay: ports + ranks, ranks: ranks}
	v.args = v.arguments()
	logFailed(t, v)
	begin := time.Now()
	v.start(t)
	t.Cleanup(func() { v.kill(t) })
	awaitHealth(t, v.name, v.address)
	t.Logf("it serves after %v", time.Since(begin).Round(time.Second))
	return v
}

// launch starts the launcher, and returns when it has imported vLLM.
func launch(t *testing.T) *launcher {
	t.Helper()
	python := filepath.Join(proxies.Cache(), "vllm/bin/python")
	l := &launcher{cmd: exec.Command(python, "testdata/serve.py")}
	l.cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=") // modules are compiled once
	l.cmd.Stderr = &l.log
	var err error
	if l.input, err = l.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	l.output = bufio.NewReader(out)
	proxies.EndWithTest(l.cmd, syscall.SIGKILL)
	begin := time.Now()
	if err := l.cmd.Start(); err != nil {
		t.Fatalf("%v; `make engines` installs vLLM", err)
	}
	for line := ""; line != "ready\n"; {
		if line, err = l.output.ReadString('\n'); err != nil {
			t.Fatalf("the launcher of vLLM: %v\n%s", err, l.log.String())
		}
	}
	t.Logf("vLLM was imported in %v", time.Since(begin).Round(time.Second))
	return l
}

// arguments are those of the server.
func (v *vllm) arguments() []string {
	_, port, err := net.SplitHostPort(v.address)
	if err != nil {
		panic(err) // it is from FreeAddress
	}
	args := []string{path("tiny"), "--host", "127.0.0.1", "--port", port, "--max-model-len", "8192", "--enforce-eager", "--block-size", strconv.Itoa(vllmBlock)}
	if v.name == "embedder" {
		return append(args, "--served-model-name", v.name, "--runner", "pooling", "--convert", "embed", "--num-gpu-blocks-override", "300")
	}
	args = append(args, "--served-model-name", rig.Model, "--num-gpu-blocks-override", strconv.Itoa(vllmBlocks), "--enable-prompt-tokens-details",
		"--kv-events-config", fmt.Sprintf(`{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:%d","replay_endpoint":"tcp://*:%d"}`, v.events, v.replay),
		"--enable-lora", "--max-loras", "2", "--max-lora-rank", "8", "--lora-modules", "sql="+path("sql"))
	if v.name == "v2" {
		args = append(args, "bird="+path("bird"))
	}
	if v.ranks > 0 {
		args = append(args, "--data-parallel-size", strconv.Itoa(v.ranks))
	}
	return args
}

func (v *vllm) logFile() string { return path(v.name + ".log") }

func (v *vllm) tail() string {
	b, err := os.ReadFile(v.logFile())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}

// start starts the server. It does not wait until it serves.
func (v *vllm) start(t *testing.T) {
	t.Helper()
	job, err := json.Marshal(map[string]any{"log": v.logFile(), "args": v.args})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(fleet.input, "%s\n", job); err != nil {
		t.Fatal(err)
	}
	line, err := fleet.output.ReadString('\n')
	if err != nil {
		t.Fatalf("the launcher of vLLM: %v\n%s", err, fleet.log.String())
	}
	if v.pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		t.Fatal(err)
	}
}

// serves reports whether the server is there.
func (v *vllm) serves() bool {
	resp, err := http.Get("http://" + v.address + "/health")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// kill ends the server at once, and waits until it is gone.
func (v *vllm) kill(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-v.pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
		t.Fatal(err)
	}
	rig.Eventually(t, time.Minute, v.name+" is gone", func() (bool, string) {
		c, err := net.Dial("tcp", v.address)
		if err == nil {
			c.Close()
		}
		return err != nil, ""
	})
}

// core is the process of the engine core, which the server has started.
func (v *vllm) core(t *testing.T) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		text := string(b)
		open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
		f := strings.Fields(text[end+1:])
		if strings.Contains(text[open:end], "EngineCor") && f[1] == strconv.Itoa(v.pid) {
			pid, err := strconv.Atoi(strings.TrimSpace(text[:open]))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("%s has no engine core", v.name)
	return 0
}

// stopVLLM ends the fleet.
func stopVLLM() {
	if fleet.launcher == nil {
		return
	}
	fleet.input.Close() // upon which it ends the servers
	_ = fleet.cmd.Wait()
}

// killProcess ends one process at once.
func killProcess(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
