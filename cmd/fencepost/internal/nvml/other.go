//go:build !linux || (!amd64 && !arm64)

package nvml

import "fmt"

// Read fails: the library is read on 64-bit Linux only.
func Read(...string) (Reading, error) {
	return Reading{}, fmt.Errorf("%w: it is read on Linux for amd64 and arm64 only", ErrUnavailable)
}
