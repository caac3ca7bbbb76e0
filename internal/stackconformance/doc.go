// Package stackconformance holds one test: the conformance suite over whole
// stacks, in every sensible order of their layers. It is a package of its own
// because no layer may import another.
package stackconformance
