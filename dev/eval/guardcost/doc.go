// Package guardcost measures what the debug guard costs: time, as ratios to
// the same work with the guard switched off, and device memory. Its tests
// also switch the tiers under load and show that nothing is lost by it.
//
// # How the time is measured
//
// Two runtimes cannot share a GPU, so one runtime runs both sides of a pair
// and its guard is switched between them, with everything drained. A side is
// the same number of units of work, chosen so that it takes long enough to be
// timed, and ends when the device is idle, the quarantine is empty and every
// verdict is there: what the guard put off is paid within the side that caused
// it. Which side goes first alternates from pair to pair. Results are compared
// between the sides, untimed.
//
// The figure of a tier is the median of the pairs' ratios. Off compared to
// itself shows what of it is noise.
package guardcost
