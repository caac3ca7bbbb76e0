// Package scripts tests the scripts that take the tests to a GPU: gpu-run, gpu-peers,
// gpu-test and gpu-sanitize. What they call (test binaries, go, ssh and the
// sanitizer) are shell scripts of the tests' making, so no GPU is needed, and
// no other machine. What an exit code of theirs says is relied on where nobody
// reads the output.
package scripts
