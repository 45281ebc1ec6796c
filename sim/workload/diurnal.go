package workload

import (
	"math"
	"time"
)

// diurnal is chat over two days, shortened to 700 seconds each. At noon the rate
// is 1.6 times the mean, at midnight 0.4 times.
func diurnal(g *generator) {
	const day, days = 700 * time.Second, 2
	apps := g.newTexts(12, 200, 1500)
	g.until = days * day
	for n := 0; n < 2200; {
		at := time.Duration(g.random.Int64N(int64(days * day)))
		rate := 1 - 0.6*math.Cos(2*math.Pi*float64(at)/float64(day))
		if g.random.Float64()*1.6 < rate {
			g.conversation(apps, at)
			n++
		}
	}
}
