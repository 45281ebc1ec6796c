package page

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"strings"

	"pointsman/admin/history"
	"pointsman/decider"
)

// levels is how many shades of load there are, besides none.
const levels = 5

// level is the shade of a load, 0 = none.
func level(v, most int) int {
	if v <= 0 || most <= 0 {
		return 0
	}
	return min(levels, 1+(v*levels-1)/most)
}

// stripPath is all fields of one shade: the path of an SVG, a unit each.
type stripPath struct {
	Level int
	Path  string
}

// strip draws the load of a replica, and describes it in words.
func strip(l *history.Load, most int) (paths []stripPath, text string) {
	var b [levels + 1]strings.Builder
	least, largest, last := -1, 0, -1
	for i := 0; i < history.Slots; {
		k := level(l[i], most)
		j := i
		for j < history.Slots && level(l[j], most) == k {
			if v := l[j]; v >= 0 {
				if least < 0 || v < least {
					least = v
				}
				largest, last = max(largest, v), v
			}
			j++
		}
		if k > 0 {
			fmt.Fprintf(&b[k], "M%d 0h%dv1h-%dz", i, j-i, j-i)
		}
		i = j
	}
	for k := range b {
		if b[k].Len() > 0 {
			paths = append(paths, stripPath{k, b[k].String()})
		}
	}
	if last < 0 {
		return nil, "not known yet"
	}
	return paths, fmt.Sprintf("%d to %d in flight, now %d", least, largest, last)
}

// mapRows is how many rows the picture of a pool has at most.
const mapRows = 512

// WriteLoad writes a picture of the load of all replicas of a pool, a row each, or the
// largest of several. Its colour is that of the page's accent in the middle of light
// and dark; only its opacity shows the load.
func WriteLoad(w io.Writer, p *decider.PoolStatus, h *history.Pool) error {
	n := len(p.Replicas)
	group := max(1, (n+mapRows-1)/mapRows)
	img := image.NewNRGBA(image.Rect(0, 0, history.Slots, max(1, (n+group-1)/group)))
	for i := range p.Replicas {
		if h == nil {
			break
		}
		l := h.Loads[p.Replicas[i].Name]
		if l == nil {
			continue
		}
		for x, v := range l {
			if k := level(v, h.Most); k > 0 {
				a := uint8(255 * k / levels)
				if a > img.NRGBAAt(x, i/group).A {
					img.SetNRGBA(x, i/group, color.NRGBA{0x3b, 0x82, 0xd6, a})
				}
			}
		}
	}
	return png.Encode(w, img)
}
