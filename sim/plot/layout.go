package plot

import (
	"fmt"
	"image/color"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"pointsman/sim/replay"
)

const (
	margin      = vg.Length(24)
	rowHeight   = vg.Length(20) // of the legend
	headingGap  = vg.Length(24) // for the heading above each panel
	maxNameLen  = 60            // characters of a policy in the legend
	legendSpace = vg.Length(22) // between two entries
)

var (
	ink      = color.RGBA{33, 37, 41, 255}
	softInk  = color.RGBA{92, 99, 106, 255}
	gridLine = color.RGBA{226, 229, 233, 255}
	// palette is Okabe and Ito's, which most colour-blind readers can tell
	// apart. More results repeat it with dashed lines.
	palette = []color.RGBA{
		{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
		{230, 159, 0, 255}, {86, 180, 233, 255}, {120, 94, 60, 255}, {110, 110, 110, 255},
	}
)

// lineStyle is the style of result number i. A thin line is also lighter.
func lineStyle(i int, width vg.Length) draw.LineStyle {
	c := palette[i%len(palette)]
	if width <= 1 {
		lighten := func(x uint8) uint8 { return 255 - (255-x)/2 }
		c = color.RGBA{lighten(c.R), lighten(c.G), lighten(c.B), 255}
	}
	s := draw.LineStyle{Color: c, Width: width}
	if i >= len(palette) {
		s.Dashes = []vg.Length{6, 3}
	}
	return s
}

func textStyle(size vg.Length, c color.Color, weight xfont.Weight) text.Style {
	f := font.From(font.Font{Typeface: "Liberation", Variant: "Sans", Weight: weight}, size)
	return text.Style{Color: c, Font: f, XAlign: draw.XLeft, YAlign: draw.YTop, Handler: plot.DefaultTextHandler}
}

// draw draws the title, the legend and, below each other, the two panels.
func (c *Chart) draw(dc draw.Canvas) error {
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())
	dc = draw.Crop(dc, margin, -margin, margin, -margin)
	dc.FillText(textStyle(20, ink, xfont.WeightBold), vg.Point{X: dc.Min.X, Y: dc.Max.Y}, c.Title)
	dc.FillText(textStyle(13, softInk, xfont.WeightNormal), vg.Point{X: dc.Min.X, Y: dc.Max.Y - 28}, c.Subtitle)
	dc = draw.Crop(dc, 0, 0, 0, -56)
	rows, err := c.legend(dc)
	if err != nil {
		return err
	}
	dc = draw.Crop(dc, 0, 0, 0, -rowHeight*vg.Length(rows))

	ttft, err := c.ttftPanel()
	if err != nil {
		return err
	}
	load, err := c.loadPanel()
	if err != nil {
		return err
	}
	panels := [][]*plot.Plot{{ttft}, {load}}
	tiles := draw.Tiles{Rows: 2, Cols: 1, PadTop: headingGap, PadY: headingGap + 16}
	headings := [...]string{"Time to first token, cumulative", "Requests in flight per replica: mean (thick) and fullest replica (thin)"}
	for i, area := range plot.Align(panels, tiles, dc) {
		top := tiles.At(dc, 0, i).Max.Y + 20
		dc.FillText(textStyle(14, ink, xfont.WeightBold), vg.Point{X: dc.Min.X, Y: top}, headings[i])
		panels[i][0].Draw(area[0])
	}
	return nil
}

// legend draws an entry for each result, side by side, in as many rows as it
// takes, and returns their number.
func (c *Chart) legend(dc draw.Canvas) (rows int, err error) {
	x, rows := dc.Min.X, 1
	for i, r := range c.Results {
		l := plot.NewLegend()
		l.TextStyle = textStyle(13, ink, xfont.WeightNormal)
		l.TextStyle.YAlign = draw.YCenter
		l.Left, l.Top, l.YPosition, l.ThumbnailWidth = true, true, draw.PosCenter, 26
		sample, err := plotter.NewLine(plotter.XYs{{}})
		if err != nil {
			return 0, err
		}
		sample.LineStyle = lineStyle(i, 3)
		l.Add("  "+legendText(r), sample)
		size := l.Rectangle(dc).Size().X
		if x > dc.Min.X && x+size > dc.Max.X {
			x, rows = dc.Min.X, rows+1
		}
		at := dc
		at.Rectangle.Min.X, at.Rectangle.Max.X = x, x+size
		at.Rectangle.Max.Y = dc.Max.Y - rowHeight*vg.Length(rows-1)
		l.Draw(at)
		x += size + legendSpace
	}
	return rows, nil
}

// legendText is the policy and the p90 of its times to first token.
func legendText(r *replay.Result) string {
	if len(r.TTFT) == 0 {
		return shorten(r.Policy)
	}
	return fmt.Sprintf("%s (p90 %.3g s)", shorten(r.Policy), replay.Quantile(r.TTFT, 0.9).Seconds())
}

// shorten cuts a long name.
func shorten(name string) string {
	if r := []rune(name); len(r) > maxNameLen {
		return string(r[:maxNameLen-1]) + "…"
	}
	return name
}

// newPanel returns an empty panel with a grid.
func newPanel(xLabel, yLabel string) *plot.Plot {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = xLabel, yLabel
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		x, y := a.Label.TextStyle, a.Tick.Label
		a.Label.TextStyle = textStyle(12, softInk, xfont.WeightNormal)
		a.Label.TextStyle.XAlign, a.Label.TextStyle.YAlign, a.Label.TextStyle.Rotation = x.XAlign, x.YAlign, x.Rotation
		a.Tick.Label = textStyle(12, softInk, xfont.WeightNormal)
		a.Tick.Label.XAlign, a.Tick.Label.YAlign = y.XAlign, y.YAlign
		a.Label.Padding = 6
		a.Padding = 0
		a.Tick.Length = 4
		a.LineStyle = draw.LineStyle{Color: softInk, Width: 1}
		a.Tick.LineStyle.Width = 0
	}
	p.Y.LineStyle.Width = 0
	grid := plotter.NewGrid()
	grid.Horizontal = draw.LineStyle{Color: gridLine, Width: 1}
	grid.Vertical = grid.Horizontal
	p.Add(grid)
	return p
}
