// Package fenceproof has no code of its own: its tests prove the fences of
// package cuda, as far as that can be done by running them. What they state and
// how is in docs/memory-model.md, the tools are in internal/proof.
package fenceproof
