package metrics

import (
	"errors"
	"log/slog"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// report counts what scrapes come to, all engines together, and logs what
// changes.
type report struct {
	log      *slog.Logger
	answers  *metrics.Counter
	failures *metrics.Counter
	seconds  *metrics.PrometheusHistogram
}

// scrapeBuckets are the bounds, in seconds, of the time that a scrape takes.
var scrapeBuckets = []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2}

func newReport(set *metrics.Set, log *slog.Logger) *report {
	return &report{
		log:      log,
		answers:  set.NewCounter(`pointsman_scrapes_total{result="answered"}`),
		failures: set.NewCounter(`pointsman_scrapes_total{result="failed"}`),
		seconds:  set.NewPrometheusHistogramExt("pointsman_scrape_seconds", scrapeBuckets),
	}
}

func (r *report) answered(s *Scraper, reading *Reading, took time.Duration) {
	r.answers.Inc()
	r.seconds.Update(took.Seconds())
	switch {
	case !s.seen:
		r.log.Info("engine found", "pool", s.pool.Name(), "replica", s.replica, "engine", reading.Kind.String(), "metrics", s.paths[s.path])
	case s.failures > 0:
		r.log.Info("engine tells its metrics again", "pool", s.pool.Name(), "replica", s.replica)
	}
}

// failed is called before the failure is counted. An engine that is not told
// and shows nothing is no news.
func (r *report) failed(s *Scraper, err error) {
	r.failures.Inc()
	if s.failures == 0 && (s.seen || s.told || !errors.Is(err, errStranger)) {
		r.log.Warn("engine tells no metrics; decisions go by what the proxy tells", "pool", s.pool.Name(), "replica", s.replica, "error", err)
	}
}
