package plot

import (
	"bytes"
	"encoding/xml"
	"image/png"
	"io"
	"strings"
	"testing"
	"time"

	"pointsman/sim/replay"
)

func plotted() []*replay.Result {
	r := &replay.Result{Policy: `least <&"requests">`}
	for i := range 100 {
		at := time.Duration(i) * time.Second
		r.TTFT = append(r.TTFT, at/10)
		r.Load = append(r.Load, replay.LoadPoint{At: at, Mean: float64(i % 10), Max: float64(i % 20)})
	}
	return []*replay.Result{r, {Policy: "nothing served"}, {Policy: "one", TTFT: []time.Duration{0}, Load: make([]replay.LoadPoint, 1)}}
}

func TestSVG(t *testing.T) {
	results := plotted()
	d := xml.NewDecoder(bytes.NewReader(SVG(results)))
	lines, text := 0, ""
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			if x.Name.Local == "polyline" {
				lines++
				for _, a := range x.Attr {
					if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
						t.Errorf("%s=%s", a.Name.Local, a.Value)
					}
				}
			}
		case xml.CharData:
			text += string(x)
		}
	}
	if lines < 3*4 {
		t.Errorf("%d lines", lines)
	}
	for _, r := range results {
		if !strings.Contains(text, r.Policy) {
			t.Errorf("no legend for %s", r.Policy)
		}
	}
}

func TestPNG(t *testing.T) {
	b, err := PNG(plotted())
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if s := picture.Bounds().Size(); s.X != plotWidth*plotScale || s.Y != plotHeight*plotScale {
		t.Errorf("%v points", s)
	}
	colours := map[[3]uint32]int{}
	for y := range plotHeight * plotScale {
		for x := range plotWidth * plotScale {
			r, g, b, _ := picture.At(x, y).RGBA()
			colours[[3]uint32{r >> 8, g >> 8, b >> 8}]++
		}
	}
	for _, c := range append(plotColors[:3], plotInk, plotGrid) {
		if colours[[3]uint32{uint32(c.R), uint32(c.G), uint32(c.B)}] < 100 {
			t.Errorf("hardly a point of %v", c)
		}
	}
}

// The letters of all that a plot writes are there.
func TestGlyphs(t *testing.T) {
	for _, r := range "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _.,:=-+%/(){}[]" {
		dots := glyphs[r]
		if len(dots) != glyphHeight || strings.Trim(dots, "01234567") != "" {
			t.Errorf("%c is %q", r, dots)
		}
	}
}
