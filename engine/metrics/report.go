package metrics

import (
	"errors"
	"log/slog"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// report counts the scrapes of all engines, and logs when an engine starts or stops serving
// its metrics. It is safe for concurrent use.
type report struct {
	log       *slog.Logger
	successes *metrics.Counter
	failures  *metrics.Counter
	seconds   *metrics.PrometheusHistogram
}

// scrapeBuckets are the histogram bounds of the duration of a scrape, in seconds.
var scrapeBuckets = []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2}

func newReport(set *metrics.Set, log *slog.Logger) *report {
	return &report{
		log:       log,
		successes: set.NewCounter(`pointsman_scrapes_total{result="answered"}`),
		failures:  set.NewCounter(`pointsman_scrapes_total{result="failed"}`),
		seconds:   set.NewPrometheusHistogramExt("pointsman_scrape_seconds", scrapeBuckets),
	}
}

// succeeded reports a scrape that succeeded. It is called before the scraper counts it.
func (r *report) succeeded(s *Scraper, reading *Reading, took time.Duration) {
	r.successes.Inc()
	r.seconds.Update(took.Seconds())
	switch {
	case !s.seen:
		r.log.Info("engine found", "pool", s.pool.Name(), "replica", s.replica, "engine", reading.Kind.String(), "metrics", s.paths[s.path])
	case s.failures > 0:
		r.log.Info("engine serves its metrics again", "pool", s.pool.Name(), "replica", s.replica)
	}
}

// replaced reports that an engine of another kind answers. It is called before the scraper
// counts its reading.
func (r *report) replaced(s *Scraper, reading *Reading) {
	r.log.Info("another engine serves here now", "pool", s.pool.Name(), "replica", s.replica, "engine", reading.Kind.String(), "before", s.last.Kind.String())
}

// dead reports that the engine declares itself unable to serve, alive that it can serve
// again.
func (r *report) dead(s *Scraper) {
	r.log.Warn("engine is dead, though its port is open; it gets no requests", "pool", s.pool.Name(), "replica", s.replica)
}

func (r *report) alive(s *Scraper) {
	r.log.Info("engine is alive again", "pool", s.pool.Name(), "replica", s.replica)
}

// failed reports a scrape that failed. It is called before the scraper counts it. It
// does not warn about a replica that is not configured as an engine and serves no
// metrics.
func (r *report) failed(s *Scraper, err error) {
	r.failures.Inc()
	if s.failures == 0 && (s.seen || s.configured || !errors.Is(err, errUnknown)) {
		r.log.Warn("cannot scrape engine; decisions use the proxy's outcomes only", "pool", s.pool.Name(), "replica", s.replica, "error", err)
	}
}
