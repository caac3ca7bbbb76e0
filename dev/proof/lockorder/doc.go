// Package lockorder demands that the product takes its locks in the order that
// dev/proof.md has written down. A build with an overlay records, for every
// lock, which others its goroutine holds when it asks for it: so two goroutines need
// not meet for an order to be noticed that can deadlock. It is the idea of the Linux
// kernel's lock validator (lockdep): locks have classes, and what is judged is the
// order of classes, not of instances.
//
// Locks of package sync are seen; channels and the guard's ctxMutex, which gives up
// with its context, are not.
package lockorder
