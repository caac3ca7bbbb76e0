package terminal

import (
	"io"
	"sync"
)

// Writer passes text on, with everything escaped that does not print but line
// ends. It is what stands behind every command, for what was forgotten:
// code that prints foreign text uses [Fprintf], which knows whose line ends are
// whose. It is safe for concurrent use. Each Write has to end between two
// characters.
type Writer struct {
	mu  sync.Mutex
	to  io.Writer
	err error
}

// NewWriter returns a writer to out.
func NewWriter(out io.Writer) *Writer { return &Writer{to: out} }

// Write writes p. Once out has failed nothing more is written, and each Write
// returns its error.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	if _, w.err = io.WriteString(w.to, escape(string(p), true)); w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

// Err is the first error of out, if there was one.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
