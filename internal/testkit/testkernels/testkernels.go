// Package testkernels is device code for tests that run on every driver:
// honest kernels whose results are easily checked, slow ones that make a
// missing fence show, and ones with planted bugs. Pointers and numbers are
// arguments of 64 bits, and words have 64 bits. Any grid will do.
package testkernels

import (
	_ "embed"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// The names of the kernels, with their arguments.
const (
	// Delay(ns) takes that long on a GPU, and no time on the simulated device.
	Delay = "fencepost_test_delay"
	// Hold(flag) lasts until the word of page-locked host memory at flag is
	// not zero, and at most ten seconds. The simulated device has none: its
	// Hold method does that.
	Hold = "fencepost_test_hold"
	// Write(words, n, value) writes n words.
	Write = "fencepost_test_write"
	// Check(words, n, expected, mismatches) adds the number of words that
	// differ to the word at mismatches.
	Check = "fencepost_test_check"
	// CopyAdd(to, from, n, add) copies n words, with add added to each.
	CopyAdd = "fencepost_test_copy_add"
	// ReadAll(words, n, out) adds the sum of n words, which are aligned to 16
	// bytes, to the word at out, as fast as they can be read. Its blocks are a
	// multiple of 32 threads.
	ReadAll = "fencepost_test_read_all"
	// Illegal(address) writes a word at an address, whatever is there.
	Illegal = "fencepost_test_illegal"
	// OutOfBounds(words, n, beyond) may write n words and writes as many as
	// beyond behind them.
	OutOfBounds = "fencepost_test_oob"
)

// Planted is the word that [Illegal] and [OutOfBounds] write.
const Planted = 0x4242424242424242

//go:embed testkernels.ptx
var ptx []byte

// Image is the kernels in the form that every driver takes. A simulated
// device needs [Register] before.
func Image() driver.Image { return driver.Image{Name: "fencepost.testkernels", PTX: ptx} }
