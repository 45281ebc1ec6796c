package page

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bytedance/sonic"
)

// browser is one tab of a headless Chromium, driven through its pipe by the DevTools
// protocol.
type browser struct {
	t       testing.TB
	to      io.Writer
	session string

	mu      sync.Mutex
	id      int
	waiting map[int]chan answer
	faults  []string // of the page: exceptions, errors, refused by the policy
}

type answer struct {
	Result sonic.NoCopyRawMessage `json:"result"`
	Error  *struct{ Message string }
}

// open starts a Chromium with an empty tab. Only `make page` brings one, and so the
// tests run there alone.
func open(t testing.TB) *browser {
	t.Helper()
	if os.Getenv("POINTSMAN_PAGE") == "" {
		t.Skip("make page runs this")
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	in, toChromium, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromChromium, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
		"--disable-background-networking", "--disable-component-update", "--no-proxy-server", "--hide-scrollbars", "--force-device-scale-factor=1",
		"--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{in, out}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	b := &browser{t: t, to: toChromium, waiting: map[int]chan answer{}}
	go b.read(bufio.NewReaderSize(fromChromium, 1<<20))
	t.Cleanup(func() {
		b.session = ""
		b.send("Browser.close", nil)
		done := make(chan struct{})
		go func() { _ = cmd.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-done
		}
		toChromium.Close()
		fromChromium.Close()
	})
	var target struct{ TargetId string } //nolint:staticcheck // as the protocol writes it
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionId string } //nolint:staticcheck // as the protocol writes it
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetId, "flatten": true}, &attached)
	b.session = attached.SessionId
	for _, domain := range []string{"Page", "Runtime", "Log", "Performance"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// read takes what Chromium sends until its end.
func (b *browser) read(r *bufio.Reader) {
	for {
		line, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			ID     int
			Method string
			Params sonic.NoCopyRawMessage
			answer
		}
		if err := sonic.Unmarshal(line[:len(line)-1], &m); err != nil {
			continue
		}
		b.mu.Lock()
		switch {
		case m.ID != 0:
			if c := b.waiting[m.ID]; c != nil {
				delete(b.waiting, m.ID)
				c <- m.answer
			}
		case m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded" && strings.Contains(string(m.Params), `"level":"error"`):
			b.faults = append(b.faults, string(m.Params))
		}
		b.mu.Unlock()
	}
}

func (b *browser) send(method string, params any) chan answer {
	b.mu.Lock()
	b.id++
	id, c := b.id, make(chan answer, 1)
	b.waiting[id] = c
	b.mu.Unlock()
	m := map[string]any{"id": id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, err := sonic.Marshal(m)
	if err != nil {
		b.t.Error(err)
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		b.t.Error(err)
	}
	return c
}

// call calls a method and reads its result into result, unless nil.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	select {
	case a := <-b.send(method, params):
		if a.Error != nil {
			b.t.Fatalf("%s: %s", method, a.Error.Message)
		}
		if result != nil {
			if err := sonic.Unmarshal(a.Result, result); err != nil {
				b.t.Fatalf("%s: %v in %s", method, err, a.Result)
			}
		}
	case <-time.After(60 * time.Second):
		b.t.Fatalf("%s: no answer", method)
	}
}

// eval returns what an expression is in the page, awaited if it is a promise.
func (b *browser) eval(expression string) any {
	b.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, r.ExceptionDetails.Exception.Description)
	}
	return r.Result.Value
}

// until waits for an expression to be true.
func (b *browser) until(expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); b.eval(expression) != true; time.Sleep(30 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("never: %s\n%s", expression, b.eval("document.body.innerText"))
		}
	}
}

// view sets the size of the window, and whether the user prefers dark colours.
func (b *browser) view(width, height int, scheme string) {
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}}}, nil)
}

// visit loads a page.
func (b *browser) visit(url string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.until(fmt.Sprintf("location.href.startsWith(%q) && document.readyState === 'complete'", url))
}

// shot writes a picture of the window into the folder POINTSMAN_SHOTS, if it is set.
func (b *browser) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("POINTSMAN_SHOTS")
	if dir == "" {
		return
	}
	var r struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &r)
	data, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// sound fails the test for what the page has done wrong.
func (b *browser) sound() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.faults {
		b.t.Errorf("the page: %s", f)
	}
	b.faults = nil
}
