package plot

import (
	"bytes"
	"encoding/xml"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pointsman/sim"
	"pointsman/sim/replay"
)

// testChart has a usual result, one without served requests, one with a single
// sample, and more results than the palette has colours.
func testChart() *Chart {
	r := &replay.Result{Policy: `least <&"requests">`}
	for i := range 100 {
		at := time.Duration(i) * time.Second
		r.TTFT = append(r.TTFT, at/10)
		r.Load = append(r.Load, replay.LoadPoint{At: at, Mean: float64(i % 10), Max: float64(i % 20)})
	}
	results := [][]*replay.Result{
		{r}, {{Policy: "nothing served"}},
		{{Policy: "one", TTFT: []time.Duration{0}, Load: make([]replay.LoadPoint, 1)}},
	}
	for range palette {
		results = append(results, []*replay.Result{r})
	}
	return New("my-trace", &replay.Comparison{
		Setup:    replay.Setup{Replicas: 8, Profile: sim.Profile70B, CacheTokens: 500_000},
		Requests: 100, Rate: 4, Saturation: 5, Results: results,
	})
}

// parseSVG returns the text in an SVG and the number of its paths.
func parseSVG(t *testing.T, b []byte) (text string, paths int) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(b)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return text, paths
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			if x.Name.Local == "path" {
				paths++
			}
			for _, a := range x.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s=%s", a.Name.Local, a.Value)
				}
			}
		case xml.CharData:
			text += string(x)
		}
	}
}

func TestSVG(t *testing.T) {
	c := testChart()
	b, err := c.SVG()
	if err != nil {
		t.Fatal(err)
	}
	text, paths := parseSVG(t, b)
	if paths < 3*4 {
		t.Errorf("%d paths", paths)
	}
	for _, want := range []string{"my-trace, load 0.8, 8 replicas", "70b replicas with 500000 tokens", "4 requests/s", "time to first token [s]", "requests served [%]", "time [s]", "requests in flight"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the chart", want)
		}
	}
	for _, r := range c.Results {
		if !strings.Contains(text, r.Policy) {
			t.Errorf("no legend for %s", r.Policy)
		}
	}
}

func TestPNG(t *testing.T) {
	b, err := testChart().PNG()
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if s := picture.Bounds().Size(); s.X != 1920 || s.Y != 1600 {
		t.Errorf("%v pixels", s)
	}
	rgba, ok := picture.(*image.RGBA)
	if !ok {
		t.Fatalf("a picture of type %T", picture)
	}
	colors := map[color.RGBA]int{}
	for p := rgba.Pix; len(p) > 0; p = p[4:] {
		colors[color.RGBA{p[0], p[1], p[2], 255}]++
	}
	for _, c := range append(palette[:3:3], ink, softInk, gridLine) {
		if colors[c] < 100 {
			t.Errorf("%d pixels of %v", colors[c], c)
		}
	}
}

// TestEmptyChart: a chart can be drawn when no request was served.
func TestEmptyChart(t *testing.T) {
	c := &Chart{Results: []*replay.Result{{Policy: "none"}}}
	b, err := c.SVG()
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := parseSVG(t, b); !strings.Contains(text, "none") {
		t.Error("no legend")
	}
}

func TestWriteFile(t *testing.T) {
	dir, c := t.TempDir(), &Chart{}
	for name, prefix := range map[string]string{"x.svg": "<?xml", "x.png": "\x89PNG"} {
		path := filepath.Join(dir, name)
		if err := c.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(b), prefix) {
			t.Errorf("%s begins with %.10q: %v", name, b, err)
		}
	}
	if err := c.WriteFile(filepath.Join(dir, "x.pdf")); err == nil || !strings.Contains(err.Error(), ".svg or .png") {
		t.Errorf("x.pdf: %v", err)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		log       bool
		want      string
	}{
		{0, 100, false, "0 10 20 30 40 50 60 70 80 90 100"},
		{0, 37, false, "0 5 10 15 20 25 30 35"},
		{0, 1, false, "0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1"},
		{0.15, 30, true, "0.2 0.5 1 2 5 10 20"},
		{0.001, 1e6, true, "0.001 0.01 0.1 1 10 100 1000 10000 100000 1e+06"},
	} {
		ticks := linearTicks(c.low, c.high)
		if c.log {
			ticks = logTicks(c.low, c.high)
		}
		var labels []string
		for _, x := range ticks {
			labels = append(labels, x.Label)
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("%v to %v: %s, want %s", c.low, c.high, got, c.want)
		}
	}
	for x, want := range map[float64]float64{1: 1, 1.5: 2, 3: 5, 7: 10, 0.03: 0.05} {
		if got := niceStep(x); math.Abs(got-want) > 1e-9 {
			t.Errorf("step of at least %v: %v, want %v", x, got, want)
		}
	}
}

func TestShorten(t *testing.T) {
	if got := shorten(strings.Repeat("ä", 100)); got != strings.Repeat("ä", 59)+"…" {
		t.Errorf("got %s", got)
	}
	if got := shorten("random"); got != "random" {
		t.Errorf("got %s", got)
	}
}
