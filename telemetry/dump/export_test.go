package dump

import "time"

// WithClock puts a clock under a writer.
func (c Config) WithClock(now func() time.Time) Config { c.now = now; return c }
