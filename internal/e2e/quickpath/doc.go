// Package quickpath holds the tests of the quick path through a whole stack over the runtime's own
// pool: which operations go by it, and that it makes no difference but for time.
//
// What the tests draw, they draw from a seed that they log; FENCEPOST_SEED=N repeats it.
package quickpath
