package core

import (
	"fmt"
	"time"
)

// Layer wraps a resource in a decorator. Returning the upstream itself is the
// way to build nothing.
type Layer func(upstream Resource) (Resource, error)

// Chain wraps base in layers, from the device outwards: the first layer is
// the innermost. Nil layers are skipped. The order has meaning: a layer sees
// what the layers outside it ask for.
func Chain(base Resource, layers ...Layer) (Resource, error) {
	if base == nil {
		return nil, Missing("Chain", "base", "give the resource to build on")
	}
	r := base
	for _, layer := range layers {
		if layer == nil {
			continue
		}
		next, err := layer(r)
		if err != nil {
			return nil, fmt.Errorf("wrapping %v: %w", r, err)
		}
		r = next
	}
	return r, nil
}

// Find returns the outermost layer of r that is a T, for inspection. It must
// not be used to reach a call that changes anything.
func Find[T any](r Resource) (T, bool) {
	for ; r != nil; r = r.Unwrap() {
		if t, ok := r.(T); ok {
			return t, true
		}
	}
	var zero T
	return zero, false
}

// Base returns the innermost resource of r.
func Base(r Resource) Resource {
	for {
		up := r.Unwrap()
		if up == nil {
			return r
		}
		r = up
	}
}

// Inspector is a resource that can list its blocks. It is found with [Find].
type Inspector interface {
	// Blocks calls yield for each block that is not released, until yield
	// returns false. Blocks that come or go meanwhile may be missed.
	Blocks(yield func(BlockInfo) bool)
}

// BlockInfo is what a layer knows of one block.
type BlockInfo struct {
	Block Block
	// AllocStack is where it was allocated, FreeStack where it was freed if it
	// was, as far as they were kept.
	AllocStack, FreeStack Stack
	// AllocSpan is the span in force when it was allocated, if its stack was kept.
	AllocSpan SpanContext
	// Uses are its last declared uses, newest first, if they were kept.
	Uses []UseRecord
	// Allocated is when it was allocated, to the resolution of the clock of
	// who kept it; zero if nobody did.
	Allocated time.Time
}
