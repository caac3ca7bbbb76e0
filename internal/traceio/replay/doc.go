// Package replay plays recorded allocation traces through a runtime, in the
// order and on the streams of the recording, and reports what the memory did.
package replay
