// Package devicecode holds the checks of the device code that is checked in:
// that its text was generated from the sources beside it, that old drivers
// take it, and that it has the kernels that Go looks up. They need no GPU and
// no CUDA toolkit; scripts/ptx --check is the check that needs the latter.
package devicecode
