package plot

import (
	"fmt"
	"image/color"
	"math"
	"time"

	"pointsman/sim/replay"
)

// A plot is laid out in these units; an SVG shows them as pixels.
const (
	plotWidth, plotHeight = 960, 720
	plotLeft, plotRight   = 70, 690 // of both panels
	plotLegend            = 712
	cdfTop, cdfBottom     = 50, 330
	loadTop, loadBottom   = 410, 660
)

var (
	plotInk  = color.RGBA{40, 40, 40, 255}
	plotGrid = color.RGBA{222, 222, 222, 255}
	// plotColors are told apart by most eyes, colour-blind ones too (after
	// Okabe and Ito, 2008); a plot of more policies repeats them.
	plotColors = []color.RGBA{
		{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
		{230, 159, 0, 255}, {86, 180, 233, 255}, {120, 94, 60, 255}, {120, 120, 120, 255},
	}
)

type point struct{ x, y float64 }

// canvas is what a plot is drawn on. Text stands above its base line y.
type canvas interface {
	line(c color.RGBA, width float64, points ...point)
	text(x, y float64, a anchor, s string)
}

type anchor uint8

const (
	anchorStart anchor = iota
	anchorMiddle
	anchorEnd
)

// SVG draws how the times to first token are distributed, and the requests
// in flight over time, for each result.
func SVG(results []*replay.Result) []byte {
	c := newSVG()
	plot(c, results)
	return c.bytes()
}

// PNG is SVG as a picture of points, of twice the size.
func PNG(results []*replay.Result) ([]byte, error) {
	c := newPNG()
	plot(c, results)
	return c.bytes()
}

func plot(c canvas, results []*replay.Result) {
	plotTTFT(c, results)
	plotLoad(c, results)
	for i, r := range results {
		y := float64(cdfTop + 18 + 22*i)
		c.line(plotColors[i%len(plotColors)], 3, point{plotLegend, y - 4}, point{plotLegend + 22, y - 4})
		c.text(plotLegend+30, y, anchorStart, r.Policy)
	}
}

// frame draws a panel's title and its frame.
func frame(c canvas, top, bottom float64, title string) {
	c.text(plotLeft, top-12, anchorStart, title)
	c.line(plotInk, 1, point{plotLeft, top}, point{plotLeft, bottom}, point{plotRight, bottom})
}

// plotTTFT draws the share of requests (down to up) that had their first token
// within a time (left to right, logarithmic).
func plotTTFT(c canvas, results []*replay.Result) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, r := range results {
		if len(r.TTFT) > 0 {
			low = min(low, logSeconds(replay.Quantile(r.TTFT, 0.01)))
			high = max(high, logSeconds(r.TTFT[len(r.TTFT)-1]))
		}
	}
	if low > high {
		low, high = -1, 1
	}
	low, high = math.Floor(low), math.Ceil(high)
	high = max(high, low+1)
	x := func(log float64) float64 {
		return plotLeft + (plotRight-plotLeft)*(max(log, low)-low)/(high-low)
	}
	y := func(share float64) float64 { return cdfBottom - (cdfBottom-cdfTop)*share }
	for decade := low; decade <= high; decade++ {
		c.line(plotGrid, 1, point{x(decade), cdfTop}, point{x(decade), cdfBottom})
		c.text(x(decade), cdfBottom+18, anchorMiddle, fmt.Sprintf("%g s", math.Pow(10, decade)))
	}
	for _, share := range []float64{0.25, 0.5, 0.75, 0.9, 1} {
		c.line(plotGrid, 1, point{plotLeft, y(share)}, point{plotRight, y(share)})
		c.text(plotLeft-8, y(share)+4, anchorEnd, fmt.Sprintf("%g %%", 100*share))
	}
	frame(c, cdfTop, cdfBottom, "share of requests with their first token within a time")
	for i, r := range results {
		const steps = 400
		line := make([]point, 0, steps+1)
		for k := range steps + 1 {
			share := float64(k) / steps
			if len(r.TTFT) > 0 {
				line = append(line, point{x(logSeconds(replay.Quantile(r.TTFT, share))), y(share)})
			}
		}
		c.line(plotColors[i%len(plotColors)], 2, line...)
	}
}

// logSeconds is the decimal logarithm of a time of at least 1 ms.
func logSeconds(t time.Duration) float64 { return math.Log10(max(t.Seconds(), 1e-3)) }

// plotLoad draws the mean requests in flight at a replica over time and, as a
// thin line, those at the fullest one.
func plotLoad(c canvas, results []*replay.Result) {
	most, span := 1.0, time.Duration(1)
	for _, r := range results {
		for _, p := range r.Load {
			most, span = max(most, p.Max), max(span, p.At)
		}
	}
	step := niceStep(most / 4)
	most = step * math.Ceil(most/step)
	y := func(n float64) float64 { return loadBottom - (loadBottom-loadTop)*n/most }
	x := func(t time.Duration) float64 { return plotLeft + (plotRight-plotLeft)*float64(t)/float64(span) }
	for n := step; n <= most; n += step {
		c.line(plotGrid, 1, point{plotLeft, y(n)}, point{plotRight, y(n)})
		c.text(plotLeft-8, y(n)+4, anchorEnd, fmt.Sprintf("%g", n))
	}
	every := niceStep(span.Seconds() / 6)
	for s := 0.0; s <= span.Seconds(); s += every {
		at := x(time.Duration(s * float64(time.Second)))
		c.text(at, loadBottom+18, anchorMiddle, fmt.Sprintf("%g s", s))
	}
	frame(c, loadTop, loadBottom, "requests in flight at a replica: mean, and the fullest one (thin)")
	for i, r := range results {
		mean, fullest := make([]point, len(r.Load)), make([]point, len(r.Load))
		for k, p := range r.Load {
			mean[k], fullest[k] = point{x(p.At), y(p.Mean)}, point{x(p.At), y(p.Max)}
		}
		c.line(plotColors[i%len(plotColors)], 0.5, fullest...)
		c.line(plotColors[i%len(plotColors)], 2, mean...)
	}
}

// niceStep is 1, 2 or 5 times a power of ten, at least x.
func niceStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= x {
			return m * power
		}
	}
	return 10 * power
}
