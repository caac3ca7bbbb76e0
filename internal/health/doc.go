// Package health says how well a runtime is: ok, or degraded, with the reasons;
// that it is closed or its device lost is known elsewhere, and added to.
//
// [Rules] turn numbers into reasons: a [Reading] a second, and from two of them
// what happened between. A [Watch] takes the readings, keeps the reasons where they
// are read without a lock, and tells of each change. docs/operate.md says when each
// reason begins and ends.
package health
