package interleave

import "sync/atomic"

// Bool is an [atomic.Bool] whose calls are steps.
type Bool struct {
	object Object
	real   atomic.Bool
}

// Load is a step.
func (x *Bool) Load() bool { x.object.step(false); return x.real.Load() }

// Store is a step.
func (x *Bool) Store(v bool) { x.object.step(true); x.real.Store(v) }

// Swap is a step.
func (x *Bool) Swap(v bool) bool { x.object.step(true); return x.real.Swap(v) }

// CompareAndSwap is a step.
func (x *Bool) CompareAndSwap(old, v bool) bool {
	x.object.step(true)
	return x.real.CompareAndSwap(old, v)
}

// Pointer is an [atomic.Pointer] whose calls are steps.
type Pointer[T any] struct {
	object Object
	real   atomic.Pointer[T]
}

// Load is a step.
func (x *Pointer[T]) Load() *T { x.object.step(false); return x.real.Load() }

// Store is a step.
func (x *Pointer[T]) Store(v *T) { x.object.step(true); x.real.Store(v) }

// Swap is a step.
func (x *Pointer[T]) Swap(v *T) *T { x.object.step(true); return x.real.Swap(v) }

// CompareAndSwap is a step.
func (x *Pointer[T]) CompareAndSwap(old, v *T) bool {
	x.object.step(true)
	return x.real.CompareAndSwap(old, v)
}
