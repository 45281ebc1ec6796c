package page

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const isLive = "document.getElementById('freshness').textContent === 'live'"

// TestPage goes through what an operator does with the page, in light and dark, wide
// and narrow.
func TestPage(t *testing.T) {
	b := open(t)
	s := newSite(t, 64)
	s.run(30)
	for _, scheme := range []string{"light", "dark"} {
		b.view(1400, 1000, scheme)
		b.visit(s.address + "/")
		b.until(isLive)
		b.until("document.querySelectorAll('.replicas tbody tr').length === 68")
		b.shot(scheme)
		b.accessible(scheme)

		b.eval("document.querySelector('[data-dialog]').click()")
		b.until("document.querySelector('dialog[open] table') !== null")
		if n := b.eval("document.querySelectorAll('dialog tbody tr').length"); n != 64.0 {
			t.Errorf("%v candidates in the decision", n)
		}
		b.shot("decision-" + scheme)
		b.accessible(scheme + ", decision")
		b.eval("document.querySelector('dialog').close()")

		b.eval(`document.querySelector('[name=body]').value = '{"model":"chat","messages":[{"role":"user","content":"Hello"}]}'; document.querySelector('#explain button').click()`)
		b.until("document.querySelectorAll('#explanation tbody tr').length === 64")
		b.eval("document.querySelector('#explain').scrollIntoView()")
		b.shot("explain-" + scheme)
		b.eval(`document.querySelector('[name=body]').value = '{"model":"<img src=x onerror=alert(1)>"}'; document.querySelector('#explain button').click()`)
		b.until("document.querySelector('#explanation .refused') !== null")

		b.eval("document.querySelector('#config summary').click()")
		b.until("document.querySelector('#config pre').textContent.includes('policy: least_work')")
	}
	for _, width := range []int{390, 320} {
		b.view(width, 844, "light")
		b.visit(s.address + "/")
		b.until(isLive)
		if over := b.eval("document.documentElement.scrollWidth - innerWidth"); over.(float64) > 0 {
			t.Errorf("%d pixels wide: the page is wider by %v", width, over)
		}
		if width == 390 {
			b.shot("narrow")
			b.accessible("narrow")
		}
	}
	b.sound()
}

// The page changes by itself: what was selected, focused and scrolled stays, and an
// agent that is gone is shown.
func TestLive(t *testing.T) {
	b := open(t)
	s := newSite(t, 8)
	s.run(5)
	b.view(1400, 1000, "light")
	b.visit(s.address + "/")
	b.until(isLive)
	b.eval("window.same = document.querySelector('.replicas tbody tr'); document.querySelector('.replicas thead a').focus(); getSelection().selectAllChildren(document.querySelector('h3'))")
	s.now.Add(int64(time.Second))
	s.request(s.decider.Pools()[1], 360)
	b.until("document.querySelector('#decisions tbody tr').dataset.key === 'embed-361'")
	if b.eval("window.same === document.querySelector('.replicas tbody tr') && document.activeElement.textContent === 'Replica' && getSelection().toString() === 'llama-70b'") != true {
		t.Error("rows, focus or selection were lost")
	}

	// Sorting, searching and back, without loading the page again.
	b.eval("window.loaded = true; [...document.querySelectorAll('.replicas thead a')].find((a) => a.textContent === 'In flight').click()")
	b.until("location.search === '?dir=desc&sort=flight' && document.querySelector('th[aria-sort=descending]') !== null")
	b.eval("const q = document.querySelector('[type=search]'); q.focus(); q.value = 'r3'; q.dispatchEvent(new Event('input', {bubbles: true}))")
	b.until("document.querySelectorAll('.replicas tbody tr').length === 1 && location.search.includes('q=r3')")
	b.eval("history.back()")
	b.until("location.search === '' && document.querySelectorAll('.replicas tbody tr').length === 12 && window.loaded === true")

	b.eval("document.getElementById('pause').click()")
	b.until("document.getElementById('freshness').textContent.startsWith('paused at') && document.getElementById('pause').textContent === 'Resume'")
	b.eval("document.getElementById('pause').click()")
	b.until(isLive)

	// By keyboard: the first stop skips the navigation, Enter opens a decision, Escape
	// closes it.
	b.eval("document.activeElement.blur(); getSelection().removeAllRanges(); scrollTo(0, 0)")
	b.visit(s.address + "/?again=1")
	b.until(isLive)
	b.key("Tab", 9)
	if text := b.eval("document.activeElement.textContent"); text != "Skip to the pools" {
		t.Errorf("the first stop is %q", text)
	}
	b.eval("document.querySelector('[data-dialog]').focus()")
	b.key("Enter", 13)
	b.until("document.querySelector('dialog[open] table') !== null")
	b.key("Escape", 27)
	b.until("document.querySelector('dialog[open]') === null && 'dialog' in document.activeElement.dataset")
	b.sound()

	if err := s.server.Shutdown(); err != nil {
		t.Error(err)
	}
	b.until("document.getElementById('freshness').textContent.startsWith('no answer since')")
}

// Without scripts the page has its tables, links sort them, and a decision is a page.
func TestWithoutScripts(t *testing.T) {
	b := open(t)
	s := newSite(t, 64)
	s.run(5)
	b.view(1400, 1000, "light")
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	at := func(url, selector string, want int) (n int) {
		b.call("Page.navigate", map[string]any{"url": url}, nil)
		for deadline := time.Now().Add(20 * time.Second); n != want && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			n = int(b.eval(fmt.Sprintf("document.querySelectorAll(%q).length", selector)).(float64))
		}
		return n
	}
	if n := at(s.address+"/?sort=flight&dir=desc", ".replicas tbody tr", 68); n != 68 {
		t.Errorf("%d rows", n)
	}
	if n := at(s.address+"/decision?pool=llama-70b&seq=100000", "h2", 1); n != 1 {
		t.Error("no page for a decision that is gone")
	}
	seq := s.decider.Pools()[0].Records()[0].Seq
	if n := at(fmt.Sprintf("%s/decision?pool=llama-70b&seq=%d", s.address, seq), "tbody tr", 64); n != 64 {
		t.Errorf("%d candidates on the page of a decision", n)
	}
}

// TestCost measures what the page costs: bytes and time to load with 64 replicas, the
// processor time of the agent while it is open, and that 4,096 replicas are usable.
func TestCost(t *testing.T) {
	b := open(t)
	s := newSite(t, 64)
	s.run(30)
	b.view(1400, 1000, "light")
	b.visit(s.address + "/")
	b.until(isLive)
	load, bytes := 1e9, 0.0
	for range 20 { // the least: other programs run beside
		b.visit(s.address + "/?n=1")
		b.until(isLive)
		load = min(load, b.eval("performance.getEntriesByType('navigation')[0].loadEventEnd").(float64))
		bytes = b.eval("performance.getEntriesByType('navigation')[0].decodedBodySize + performance.getEntriesByType('resource').filter((e) => !e.name.includes('live=')).reduce((n, e) => n + e.decodedBodySize, 0)").(float64)
	}
	cpu, began := processor(t), time.Now()
	time.Sleep(10 * time.Second)
	share := 100 * (processor(t) - cpu).Seconds() / time.Since(began).Seconds()
	t.Logf("64 replicas: loaded in %.0f ms, %.0f kB, %.2f %% of a core while open", load, bytes/1000, share)
	if load > 100 || bytes > 200_000 || share > 1 {
		t.Errorf("more than 100 ms, 200 kB or 1 %% of a core")
	}

	many := newSite(t, 4096)
	many.run(12)
	b.visit(many.address + "/")
	b.until(isLive)
	began = time.Now()
	b.eval("[...document.querySelectorAll('.replicas thead a')].find((a) => a.textContent === 'In flight').click()")
	b.until("document.querySelector('th[aria-sort=descending]') !== null")
	sorted := time.Since(began)
	b.until("document.querySelector('figure img').complete && document.querySelector('figure img').naturalHeight === 512")
	b.shot("4096")
	t.Logf("4096 replicas: sorted in %v", sorted.Round(time.Millisecond))
	if sorted > 2*time.Second {
		t.Error("sorting takes too long")
	}
	b.eval("document.querySelector('[rel=next]').click()")
	b.until("location.search.includes('page=1')")
	b.sound()
}

// processor is the processor time of this process so far.
func processor(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// key presses a key.
func (b *browser) key(name string, code int) {
	text := ""
	if name == "Enter" {
		text = "\r"
	}
	for _, kind := range []string{"keyDown", "keyUp"} {
		b.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code, "text": text}, nil)
	}
}

// accessible has axe-core look for faults, where make page has brought it.
func (b *browser) accessible(what string) {
	b.t.Helper()
	cache := os.Getenv("POINTSMAN_CACHE")
	if cache == "" {
		cache = filepath.Join(os.Getenv("HOME"), ".cache/pointsman")
	}
	axe, err := os.ReadFile(filepath.Join(cache, "axe.min.js"))
	if err != nil {
		b.t.Logf("no axe-core: %v", err)
		return
	}
	b.eval(string(axe) + "; 0")
	found := b.eval(`axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}).then((r) => r.violations.map((v) => v.impact + ": " + v.id + ": " + v.nodes.slice(0, 3).map((n) => n.html + " " + n.failureSummary).join("; ")).join("\n"))`)
	if text := found.(string); strings.TrimSpace(text) != "" {
		b.t.Errorf("%s: %s", what, text)
	}
}
