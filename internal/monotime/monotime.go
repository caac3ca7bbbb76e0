// Package monotime reads the clock, at half the price where the processor counts at a
// constant rate.
//
// There an instant follows from the processor's counter by a line, which is good for a
// tenth of a second. The next reading then compares the two and draws another line.
// A counter whose rate is not what it was is not followed: the system's clock is
// read until two rates in a row agree. So nothing depends on the counter but the price:
// instants are within [Error] of the system's clock.
package monotime

import "time"

// Instant is a reading of the monotonic clock, as the time since the process
// started. The difference of two is a [time.Duration].
type Instant time.Duration

// Error bounds how far an instant is from the system's monotonic clock, as long as that
// is not being slewed by more than 50 ppm, and how much smaller than an earlier one it
// can be. Both are usually below 100 ns.
const Error = 10 * time.Microsecond

// processStart is as early as a library sees.
var processStart = time.Now()

// Now reads the monotonic clock. It is safe for concurrent use and does not block.
func Now() Instant {
	l := current.Load()
	if counted := ticks() - l.from; counted < l.good {
		return l.start + nanoseconds(counted, l.rate)
	}
	return l.beyond()
}

// Since is the time from earlier to i, never less than zero.
func (i Instant) Since(earlier Instant) time.Duration { return max(0, time.Duration(i-earlier)) }

// Time is i on both clocks. The time of day is compared with the monotonic clock when the
// clock is read, but not more than ten times a second; so a step of it shows in the
// instants from a tenth of a second later on.
func (i Instant) Time() time.Time { return i.base().Add(time.Duration(i)) }

// system reads the system's monotonic clock.
func system() Instant { return Instant(time.Since(processStart)) }
