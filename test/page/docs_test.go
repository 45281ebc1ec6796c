package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestDocs looks at the documentation site: light, dark and narrow, its search, and
// without scripts.
func TestDocs(t *testing.T) {
	b := open(t)
	out := filepath.Join(t.TempDir(), "site")
	cmd := exec.Command("go", "run", "-trimpath", ".", "-out", out)
	cmd.Dir = "../../packaging/site"
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(out)))
	defer server.Close()

	for _, scheme := range []string{"light", "dark"} {
		b.view(1280, 900, scheme)
		b.visit(server.URL + "/")
		b.shot("docs-" + scheme)
		b.accessible("docs, " + scheme)
		b.visit(server.URL + "/how-it-works.html")
		b.until("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
		b.shot("docs-how-" + scheme)
		b.accessible("docs, how it works, " + scheme)

		b.eval("document.getElementById('q').focus(); document.execCommand('insertText', false, 'duplicate models')")
		b.until("document.querySelectorAll('#found a').length > 0 && document.querySelector('#found mark') !== null")
		b.shot("docs-search-" + scheme)
		b.accessible("docs, search, " + scheme)
		b.eval("document.querySelector('#found a').click()")
		b.until("!location.pathname.startsWith('/how-it-works') && document.readyState === 'complete' && document.body.innerText.toLowerCase().includes('duplicate')")
	}
	for _, width := range []int{390, 320} {
		b.view(width, 844, "light")
		for _, page := range []string{"start", "reference/keys", "tutorials/chat-fleet", "comparison", "how-it-works", "reference/commands"} {
			b.visit(fmt.Sprintf("%s/%s.html", server.URL, page))
			if over := b.eval("document.documentElement.scrollWidth - innerWidth"); over.(float64) > 0 {
				t.Errorf("%s, %d pixels wide: the page is wider by %v", page, width, over)
			}
		}
		b.visit(server.URL + "/tutorials/chat-fleet.html")
		if width == 390 {
			b.shot("docs-narrow")
			b.accessible("docs, narrow")
		}
	}
	b.sound()

	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	b.view(1280, 900, "light")
	b.call("Page.navigate", map[string]any{"url": server.URL + "/reference/keys.html"}, nil)
	b.until("document.readyState === 'complete' && document.title.startsWith('All keys')")
	if b.eval("document.querySelector('.search').hidden && document.querySelector('.pages a[aria-current]').getBoundingClientRect().height > 0") != true {
		t.Error("without scripts the search shows, or the navigation does not")
	}
	b.shot("docs-without-scripts")
	b.sound()
}
