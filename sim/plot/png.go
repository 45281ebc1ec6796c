package plot

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"strings"
)

// picture is a canvas of points, plotScale of them a unit.
type picture struct{ image *image.RGBA }

const (
	plotScale = 2
	dotSize   = 3 // points a side of a letter's dot
)

func newPNG() *picture {
	p := &picture{image.NewRGBA(image.Rect(0, 0, plotWidth*plotScale, plotHeight*plotScale))}
	draw.Draw(p.image, p.image.Rect, image.White, image.Point{}, draw.Src)
	return p
}

// line draws with a square brush.
func (p *picture) line(c color.RGBA, width float64, points ...point) {
	brush := max(1, int(math.Round(width*plotScale)))
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		steps := math.Ceil(plotScale * max(math.Abs(b.x-a.x), math.Abs(b.y-a.y)))
		for k := 0.0; k <= steps; k++ {
			share := k / max(steps, 1)
			p.dot(c, a.x*plotScale+(b.x-a.x)*plotScale*share, a.y*plotScale+(b.y-a.y)*plotScale*share, brush)
		}
	}
}

// dot fills a square of size points around x, y.
func (p *picture) dot(c color.RGBA, x, y float64, size int) {
	left, top := int(x)-size/2, int(y)-size/2
	draw.Draw(p.image, image.Rect(left, top, left+size, top+size), image.NewUniform(c), image.Point{}, draw.Src)
}

func (p *picture) text(x, y float64, a anchor, text string) {
	const advance = (glyphWidth + 1) * dotSize
	left := x*plotScale - float64(len(text)*advance)*[...]float64{0, 0.5, 1}[a]
	top := y*plotScale - glyphHeight*dotSize
	for i, r := range strings.ToUpper(text) {
		for row, bits := range glyph(r) {
			for col := range glyphWidth {
				if bits>>(glyphWidth-1-col)&1 == 1 {
					p.dot(plotInk, left+float64(i*advance+col*dotSize), top+float64(row*dotSize), dotSize)
				}
			}
		}
	}
}

func (p *picture) bytes() ([]byte, error) {
	var b bytes.Buffer
	err := png.Encode(&b, p.image)
	return b.Bytes(), err
}

const glyphWidth, glyphHeight = 3, 5

// glyphs holds a letter's rows from the top, an octal digit each: 4 is the
// left dot, 2 the middle one, 1 the right one.
var glyphs = map[rune]string{
	'0': "75557", '1': "26227", '2': "71747", '3': "71717", '4': "55711",
	'5': "74717", '6': "74757", '7': "71122", '8': "75757", '9': "75717",
	'A': "25755", 'B': "65656", 'C': "34443", 'D': "65556", 'E': "74647",
	'F': "74644", 'G': "34553", 'H': "55755", 'I': "72227", 'J': "11152",
	'K': "55655", 'L': "44447", 'M': "57755", 'N': "65555", 'O': "25552",
	'P': "65644", 'Q': "25563", 'R': "65655", 'S': "34216", 'T': "72222",
	'U': "55557", 'V': "55552", 'W': "55775", 'X': "55255", 'Y': "55222",
	'Z': "71247", ' ': "00000", '_': "00007", '.': "00002", ',': "00024",
	':': "02020", '=': "07070", '-': "00700", '+': "02720", '%': "51245",
	'/': "11244", '(': "12221", ')': "42224", '{': "32623", '}': "62326",
	'[': "64446", ']': "31113",
}

// glyph is the rows of a letter; a full box stands for one there is not.
func glyph(r rune) (rows [glyphHeight]byte) {
	dots, ok := glyphs[r]
	if !ok {
		dots = "77777"
	}
	for i := range rows {
		rows[i] = dots[i] - '0'
	}
	return rows
}
