package core

import "strings"

// Features is a set of what a resource can do.
type Features uint32

// The features.
const (
	// UseTracking: PrepareUse, FinishUse, AbortUse and RecordUse work.
	UseTracking Features = 1 << iota
	// StreamOrdered: Allocate and Deallocate are ordered on streams.
	StreamOrdered
	// Reservations: Reserve and ReleaseClaim work. The budget adds it: that
	// layer is what implements them.
	Reservations
	// DeviceChecks: added by the guard itself, it says that the guard verifies bytes on the device, not just its
	// ledger.
	DeviceChecks
	// Isolation: requests with Isolated set get memory of their own mapping.
	Isolation
	// OrderedRelease: a block is released when its free is queued and not when the device has
	// come to that. The next owner of its memory comes behind the free on the device.
	OrderedRelease
)

var featureNames = [...]string{"use-tracking", "stream-ordered", "reservations", "device-checks", "isolation", "ordered-release"}

// Has reports whether all features of want are present.
func (f Features) Has(want Features) bool { return f&want == want }

// String lists the features, joined by "+".
func (f Features) String() string {
	var names []string
	for i, name := range featureNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, "+")
}
