// Package crossing measures what a call into C costs by the ways that Go has:
// purego's general one, which package libcuda uses, cgo, and an assembly
// trampoline of fixed arity that shows what purego's generality costs. It has
// benchmarks and no code that anything imports.
package crossing
