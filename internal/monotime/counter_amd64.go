//go:build !purego

package monotime

// ticks reads the processor's time-stamp counter. It is not ordered with the
// instructions around it, which is a matter of tens of nanoseconds.
func ticks() uint64

// hasConstantRate asks the processor whether the counter goes on at one rate, whatever
// the processor does.
func hasConstantRate() bool
