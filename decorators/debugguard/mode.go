package debugguard

import "fmt"

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

// String is the mode's name as [ParseMode] takes it without options.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}
