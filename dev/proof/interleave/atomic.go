package interleave

import "sync/atomic"

// cell is an atomic whose calls are steps: A of package sync/atomic, with values of type T.
type cell[T, A any, P interface {
	*A
	Load() T
	Store(T)
	Swap(T) T
	CompareAndSwap(old, v T) bool
}] struct {
	object Object
	real   A
}

// Load is a step.
func (x *cell[T, A, P]) Load() T { x.object.step(false); return P(&x.real).Load() }

// Store is a step.
func (x *cell[T, A, P]) Store(v T) { x.object.step(true); P(&x.real).Store(v) }

// Swap is a step.
func (x *cell[T, A, P]) Swap(v T) T { x.object.step(true); return P(&x.real).Swap(v) }

// CompareAndSwap is a step.
func (x *cell[T, A, P]) CompareAndSwap(old, v T) bool {
	x.object.step(true)
	return P(&x.real).CompareAndSwap(old, v)
}

// Bool is an [atomic.Bool] whose calls are steps.
type Bool struct {
	cell[bool, atomic.Bool, *atomic.Bool]
}

// Pointer is an [atomic.Pointer] whose calls are steps.
type Pointer[T any] struct {
	cell[*T, atomic.Pointer[T], *atomic.Pointer[T]]
}

// Int32 is an [atomic.Int32] whose calls are steps. What is scheduled counts nothing below
// zero, so that is a fault.
type Int32 struct {
	cell[int32, atomic.Int32, *atomic.Int32]
}

// Add is a step.
func (x *Int32) Add(n int32) int32 { x.object.step(true); return notBelowZero(x.real.Add(n)) }

// Int64 is an [atomic.Int64] whose calls are steps. What is scheduled counts nothing below
// zero, so that is a fault.
type Int64 struct {
	cell[int64, atomic.Int64, *atomic.Int64]
}

// Add is a step.
func (x *Int64) Add(n int64) int64 { x.object.step(true); return notBelowZero(x.real.Add(n)) }

// Uint32 is an [atomic.Uint32] whose calls are steps.
type Uint32 struct {
	cell[uint32, atomic.Uint32, *atomic.Uint32]
}

// Add is a step.
func (x *Uint32) Add(n uint32) uint32 { x.object.step(true); return x.real.Add(n) }

// Uint64 is an [atomic.Uint64] whose calls are steps.
type Uint64 struct {
	cell[uint64, atomic.Uint64, *atomic.Uint64]
}

// Add is a step.
func (x *Uint64) Add(n uint64) uint64 { x.object.step(true); return x.real.Add(n) }

func notBelowZero[T int32 | int64](n T) T {
	if n < 0 && exploring != nil {
		exploring.fail("a count fell below zero")
	}
	return n
}
