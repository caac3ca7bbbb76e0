// Package fenceproof has no code of its own: its tests prove the fences of the instrumented
// packages (cuda and what it imports), as far as that can be done by running them. What they
// state and how is in dev/proof.md, the tools are in dev/proof.
package fenceproof
