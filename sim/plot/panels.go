package plot

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"pointsman/sim/replay"
)

const (
	cdfPoints = 500
	// shortest is the shortest time on the logarithmic axis, in seconds.
	shortest = 1e-3
	maxTicks = 10
)

// ttftPanel plots the share of requests that had their first token within a
// time, on a logarithmic axis.
func (c *Chart) ttftPanel() (*plot.Plot, error) {
	p := newPanel("time to first token [s]", "requests served [%]")
	low, high := math.Inf(1), math.Inf(-1)
	for i, r := range c.Results {
		if len(r.TTFT) == 0 {
			continue
		}
		low = min(low, seconds(replay.Quantile(r.TTFT, 0.01)))
		high = max(high, seconds(r.TTFT[len(r.TTFT)-1]))
		points := make(plotter.XYs, cdfPoints+1)
		for k := range points {
			share := float64(k) / cdfPoints
			points[k] = plotter.XY{X: seconds(replay.Quantile(r.TTFT, share)), Y: 100 * share}
		}
		if err := addLine(p, points, i, 2.5); err != nil {
			return nil, err
		}
	}
	if low > high {
		low, high = 0.1, 10
	}
	p.X.Scale = plot.LogScale{}
	p.X.Min, p.X.Max = low, max(high, 2*low)
	p.X.Tick.Marker = plot.TickerFunc(logTicks)
	p.Y.Min, p.Y.Max = 0, 100
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 25, Label: "25"}, {Value: 50, Label: "50"}, {Value: 75, Label: "75"}, {Value: 90, Label: "90"}, {Value: 100, Label: "100"}}
	return p, nil
}

// loadPanel plots the mean requests in flight per replica over time and, as a
// thin line, those of the fullest replica.
func (c *Chart) loadPanel() (*plot.Plot, error) {
	p := newPanel("time [s]", "requests in flight")
	most, span := 1.0, 1.0
	for _, thin := range []bool{true, false} {
		for i, r := range c.Results {
			if len(r.Load) == 0 {
				continue
			}
			points := make(plotter.XYs, len(r.Load))
			for k, at := range r.Load {
				points[k] = plotter.XY{X: at.At.Seconds(), Y: at.Mean}
				if thin {
					points[k].Y = at.Max
				}
				most, span = max(most, at.Max), max(span, at.At.Seconds())
			}
			width := vg.Length(2.5)
			if thin {
				width = 1
			}
			if err := addLine(p, points, i, width); err != nil {
				return nil, err
			}
		}
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, span, 0, 1.05*most
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(linearTicks), plot.TickerFunc(linearTicks)
	return p, nil
}

func addLine(p *plot.Plot, points plotter.XYs, result int, width vg.Length) error {
	line, err := plotter.NewLine(points)
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	line.LineStyle = lineStyle(result, width)
	p.Add(line)
	return nil
}

// seconds is a time on the logarithmic axis.
func seconds(t time.Duration) float64 { return max(t.Seconds(), shortest) }

// logTicks returns ticks at 1, 2 and 5 times the powers of ten, or only at the
// powers if there are many.
func logTicks(low, high float64) []plot.Tick {
	first, last := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	steps := []float64{1, 2, 5}
	if last-first > 5 {
		steps = steps[:1]
	}
	var ticks []plot.Tick
	for power := first; power <= last; power++ {
		for _, step := range steps {
			ticks = appendTick(ticks, low, high, step*math.Pow(10, power))
		}
	}
	return ticks
}

// linearTicks returns at most maxTicks+1 ticks at multiples of 1, 2 or 5 times
// a power of ten.
func linearTicks(low, high float64) []plot.Tick {
	step := niceStep((high - low) / maxTicks)
	var ticks []plot.Tick
	for k := math.Ceil(low / step); k*step <= high; k++ {
		ticks = appendTick(ticks, low, high, k*step)
	}
	return ticks
}

func appendTick(ticks []plot.Tick, low, high, value float64) []plot.Tick {
	if value < low || value > high {
		return ticks
	}
	return append(ticks, plot.Tick{Value: value, Label: strconv.FormatFloat(value, 'g', 6, 64)})
}

// niceStep returns the smallest of 1, 2 and 5 times a power of ten that is at
// least x.
func niceStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= x {
			return m * power
		}
	}
	return 10 * power
}
