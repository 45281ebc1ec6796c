package plot

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"pointsman/sim/replay"
)

// Chart is a picture of one or more results: the distribution of the times to
// first token, and the requests in flight over time.
type Chart struct {
	Title    string
	Subtitle string
	Results  []*replay.Result
}

// New returns a chart of the first seed's results.
func New(traceName string, c *replay.Comparison) *Chart {
	return &Chart{
		Title: fmt.Sprintf("%s, load %.3g, %d replicas", traceName, c.Load(), c.Replicas),
		Subtitle: fmt.Sprintf("%d requests at %.3g requests/s (round robin saturates at %.3g); %s replicas with %d tokens of KV cache each",
			c.Requests, c.Rate, c.Saturation, c.Profile.Name, c.CacheTokens),
		Results: c.First(),
	}
}

// The size of a chart. A PNG has pngDPI/72 pixels per point.
const (
	width, height = 960 * vg.Inch / 72, 800 * vg.Inch / 72
	pngDPI        = 144
)

// formats are the supported formats by file extension.
var formats = map[string]func(*Chart) ([]byte, error){
	".svg": (*Chart).SVG,
	".png": (*Chart).PNG,
}

// CheckPath returns an error if the file name does not end in .svg or .png.
func CheckPath(path string) error {
	if formats[filepath.Ext(path)] == nil {
		return fmt.Errorf("plot: %q, want a file that ends in .svg or .png", path)
	}
	return nil
}

// WriteFile writes the chart to the file at path, in the format of its
// extension.
func (c *Chart) WriteFile(path string) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	b, err := formats[filepath.Ext(path)](c)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}

// SVG returns the chart as SVG.
func (c *Chart) SVG() ([]byte, error) {
	return c.render(vgsvg.New(width, height))
}

// PNG returns the chart as PNG.
func (c *Chart) PNG() ([]byte, error) {
	return c.render(vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(pngDPI))})
}

// render draws the chart on a canvas and returns the encoded picture.
func (c *Chart) render(canvas interface {
	vg.CanvasSizer
	io.WriterTo
}) ([]byte, error) {
	if err := c.draw(draw.New(canvas)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err := canvas.WriteTo(&b)
	return b.Bytes(), err
}
