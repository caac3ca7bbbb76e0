package driver

import "math"

// Ptr is a device address as a kernel argument.
func Ptr(p uint64) Arg { return Arg{Bits: p, Size: 8, Pointer: true} }

// U64 is a 64-bit unsigned kernel argument.
func U64(v uint64) Arg { return Arg{Bits: v, Size: 8} }

// U32 is a 32-bit unsigned kernel argument.
func U32(v uint32) Arg { return Arg{Bits: uint64(v), Size: 4} }

// I32 is a 32-bit signed kernel argument.
func I32(v int32) Arg { return Arg{Bits: uint64(uint32(v)), Size: 4} }

// F32 is a 32-bit floating-point kernel argument.
func F32(v float32) Arg { return Arg{Bits: uint64(math.Float32bits(v)), Size: 4} }

// F64 is a 64-bit floating-point kernel argument.
func F64(v float64) Arg { return Arg{Bits: math.Float64bits(v), Size: 8} }
