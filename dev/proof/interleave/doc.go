// Package interleave runs goroutines one at a time and chooses at every lock, atomic
// and driver call which of them goes on: all choices with at most so many
// preemptions, one after the other (Musuvathi and Qadeer 2007).
//
// It stands in for the packages sync and sync/atomic: code that is to be scheduled
// is built with an overlay in which these imports name it (package overlay).
// While nothing is explored its types are those of the standard library. Where
// the code locks, unlocks or touches an atomic in an exploration, the goroutine
// stops before that and another may be chosen.
//
// # What is left out, and why that misses nothing
//
// No goroutine is stopped before what no other touches: to stop it later, before
// what is shared, shows the others the same. What is shared is found on the way;
// whenever an object turns out to be, the exploration starts anew.
//
// Two beginnings of executions that differ in the order of steps which have
// nothing in common lead to the same state. Each step is given a number made of
// those before it of its goroutine and on its objects, and the sum of these
// numbers stands for all orders of the same steps; where a sum was reached
// before, with the same goroutine running and at least as many preemptions left,
// nothing is explored a second time (as CHESS does, with 64 bits).
//
// Both take for granted that goroutines have nothing in common but locks, atomics
// and the objects named to [Do]: that other memory is guarded by them, which is
// for the race detector to find out.
//
// Goroutines that are scheduled must not block on anything else: a channel, a
// sleep. An exploration must be the only one of its process.
package interleave
