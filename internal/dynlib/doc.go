// Package dynlib opens C libraries while the program runs, without cgo, where
// CUDA's are used: on Linux for amd64 and arm64. Elsewhere it opens none.
package dynlib
