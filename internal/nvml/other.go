//go:build !linux || (!amd64 && !arm64)

package nvml

import "fmt"

// Read fails: the library is read on 64-bit Linux only.
func Read(...string) (Reading, error) {
	return Reading{}, fmt.Errorf("%w: it is read on Linux for amd64 and arm64 only", ErrUnavailable)
}

// Limits is nothing here.
type Limits struct{}

// OpenLimits returns nil.
func OpenLimits(string, ...string) *Limits { return nil }

// Of is never ok.
func (l *Limits) Of(string) (hard, used uint64, ok bool) { return 0, 0, false }

// Close does nothing.
func (l *Limits) Close() {}
