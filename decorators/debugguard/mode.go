package debugguard

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
)

// Mode is how much the guard does.
type Mode uint8

// The modes, in the order of what they see and cost.
const (
	// Off passes everything on.
	Off Mode = iota
	// Ledger keeps the books of blocks and uses on the host.
	Ledger
	// Sample is Ledger, and device guarding of blocks chosen by bytes and of
	// every block of a hunted tag.
	Sample
	// Hunt guards every block and keeps every stack.
	Hunt
)

var modeNames = [...]string{"off", "ledger", "sample", "hunt"}

// String is the mode's name as [ParseMode] takes it.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// ParseMode reads "off", "ledger", "sample", "sample:BYTES" or "hunt". BYTES
// is the mean number of bytes between samples; sampleBytes is zero if none
// was named. The error is a [core.InvalidRequestError].
func ParseMode(s string) (m Mode, sampleBytes uint64, err error) {
	name, bytes, hasBytes := strings.Cut(s, ":")
	for i, known := range modeNames {
		if name != known {
			continue
		}
		m = Mode(i)
		if !hasBytes {
			return m, 0, nil
		}
		sampleBytes, err = strconv.ParseUint(bytes, 10, 64)
		if m != Sample || err != nil || sampleBytes == 0 {
			break
		}
		return m, sampleBytes, nil
	}
	return Off, 0, &core.InvalidRequestError{Op: "debugguard.ParseMode", Field: "mode",
		Reason: fmt.Sprintf("%q: say off, ledger, sample, sample:BYTES or hunt", s)}
}
