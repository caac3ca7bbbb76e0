// Package doctor looks at a machine as the runtime will find it: the CUDA
// driver, its devices, what containers and limits do to them, and whether a
// runtime opened there works. It names each problem with what to do about it.
//
// [Collect] gathers facts through a [System], which tests replace; [Report]
// prints itself for people and encodes itself for machines.
package doctor
