package interleave

import "sync/atomic"

// Int32 is an [atomic.Int32] whose calls are steps. What is scheduled counts nothing below
// zero, so that is a fault.
type Int32 struct {
	object Object
	real   atomic.Int32
}

// Load is a step.
func (x *Int32) Load() int32 { x.object.step(false); return x.real.Load() }

// Store is a step.
func (x *Int32) Store(v int32) { x.object.step(true); x.real.Store(v) }

// Swap is a step.
func (x *Int32) Swap(v int32) int32 { x.object.step(true); return x.real.Swap(v) }

// Add is a step.
func (x *Int32) Add(n int32) int32 {
	x.object.step(true)
	return notBelowZero(x.real.Add(n))
}

// CompareAndSwap is a step.
func (x *Int32) CompareAndSwap(old, v int32) bool {
	x.object.step(true)
	return x.real.CompareAndSwap(old, v)
}

// Int64 is an [atomic.Int64] whose calls are steps. What is scheduled counts nothing below
// zero, so that is a fault.
type Int64 struct {
	object Object
	real   atomic.Int64
}

// Load is a step.
func (x *Int64) Load() int64 { x.object.step(false); return x.real.Load() }

// Store is a step.
func (x *Int64) Store(v int64) { x.object.step(true); x.real.Store(v) }

// Swap is a step.
func (x *Int64) Swap(v int64) int64 { x.object.step(true); return x.real.Swap(v) }

// Add is a step.
func (x *Int64) Add(n int64) int64 {
	x.object.step(true)
	return notBelowZero(x.real.Add(n))
}

// CompareAndSwap is a step.
func (x *Int64) CompareAndSwap(old, v int64) bool {
	x.object.step(true)
	return x.real.CompareAndSwap(old, v)
}

// Uint32 is an [atomic.Uint32] whose calls are steps.
type Uint32 struct {
	object Object
	real   atomic.Uint32
}

// Load is a step.
func (x *Uint32) Load() uint32 { x.object.step(false); return x.real.Load() }

// Store is a step.
func (x *Uint32) Store(v uint32) { x.object.step(true); x.real.Store(v) }

// Swap is a step.
func (x *Uint32) Swap(v uint32) uint32 { x.object.step(true); return x.real.Swap(v) }

// Add is a step.
func (x *Uint32) Add(n uint32) uint32 {
	x.object.step(true)
	return x.real.Add(n)
}

// CompareAndSwap is a step.
func (x *Uint32) CompareAndSwap(old, v uint32) bool {
	x.object.step(true)
	return x.real.CompareAndSwap(old, v)
}

// Uint64 is an [atomic.Uint64] whose calls are steps.
type Uint64 struct {
	object Object
	real   atomic.Uint64
}

// Load is a step.
func (x *Uint64) Load() uint64 { x.object.step(false); return x.real.Load() }

// Store is a step.
func (x *Uint64) Store(v uint64) { x.object.step(true); x.real.Store(v) }

// Swap is a step.
func (x *Uint64) Swap(v uint64) uint64 { x.object.step(true); return x.real.Swap(v) }

// Add is a step.
func (x *Uint64) Add(n uint64) uint64 {
	x.object.step(true)
	return x.real.Add(n)
}

// CompareAndSwap is a step.
func (x *Uint64) CompareAndSwap(old, v uint64) bool {
	x.object.step(true)
	return x.real.CompareAndSwap(old, v)
}

func notBelowZero[T int32 | int64](n T) T {
	if n < 0 && exploring != nil {
		exploring.fail("a count fell below zero")
	}
	return n
}
