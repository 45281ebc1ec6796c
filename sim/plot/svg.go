package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
)

// svg is a canvas that writes SVG 1.1.
type svg struct{ b bytes.Buffer }

func newSVG() *svg {
	s := &svg{}
	fmt.Fprintf(&s.b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="13">
<rect width="100%%" height="100%%" fill="#fff"/>
`, plotWidth, plotHeight)
	return s
}

func (s *svg) line(c color.RGBA, width float64, points ...point) {
	fmt.Fprintf(&s.b, `<polyline fill="none" stroke="#%02x%02x%02x" stroke-width="%g" points="`, c.R, c.G, c.B, width)
	for i, p := range points {
		if i > 0 {
			s.b.WriteByte(' ')
		}
		fmt.Fprintf(&s.b, "%.1f,%.1f", p.x, p.y)
	}
	s.b.WriteString("\"/>\n")
}

func (s *svg) text(x, y float64, a anchor, text string) {
	fmt.Fprintf(&s.b, `<text x="%.1f" y="%.1f" text-anchor="%s">`, x, y, [...]string{"start", "middle", "end"}[a])
	xml.EscapeText(&s.b, []byte(text)) // a buffer takes all
	s.b.WriteString("</text>\n")
}

func (s *svg) bytes() []byte {
	s.b.WriteString("</svg>\n")
	return s.b.Bytes()
}
