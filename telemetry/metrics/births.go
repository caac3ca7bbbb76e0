package metrics

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// births keeps since when each counter of a collector's group counts, by its labels: what
// Prometheus needs to see the first increase of one that comes with a value. It is safe for
// concurrent use.
type births struct {
	mu sync.Mutex
	// last is when the newest look began that is over, at first when counting began.
	last time.Time
	of   map[series]time.Time
}

type series struct {
	desc   *prometheus.Desc
	labels string
}

// mostBirths bounds what is kept: counters beyond that have no time.
const mostBirths = 1 << 16

// look is one scrape.
type look struct {
	births *births
	before time.Time
}

// begin begins a look; end ends it.
func (b *births) begin() (l look, end func()) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	return look{b, b.last}, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if now.After(b.last) {
			b.last = now
		}
	}
}

// born is a time at which the counter was still zero: that of the look before the first that had
// it. Zero if it is not known.
func (l look) born(desc *prometheus.Desc, labels []string) time.Time {
	if l.births == nil {
		return time.Time{}
	}
	key := series{desc, strings.Join(labels, "\xff")} // which no valid text has
	l.births.mu.Lock()
	defer l.births.mu.Unlock()
	at, known := l.births.of[key]
	if !known && len(l.births.of) < mostBirths {
		at = l.before
		l.births.of[key] = at
	}
	return at
}

// single is a metric of one value. A counter has the time from which it counts.
func (s sender) single(value float64, labels ...string) prometheus.Metric {
	if s.kind == prometheus.CounterValue {
		if at := s.look.born(s.desc, labels); !at.IsZero() {
			return prometheus.MustNewConstMetricWithCreatedTimestamp(s.desc, s.kind, value, at, labels...)
		}
	}
	return prometheus.MustNewConstMetric(s.desc, s.kind, value, labels...)
}
