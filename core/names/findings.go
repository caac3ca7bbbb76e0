// Package names has the names by which findings, health and traces go in metrics, log
// records, spans and files, for programs that match them: if f.Kind == names.FindingLeak.
// They are untyped constants, which the types of package core take, and stable. It also
// bounds the names that callers give. All of it is safe for concurrent use and does not block.
package names

// The kinds of findings, values of core.FindingKind, whose comment says what each
// means.
const (
	FindingUseAfterFreeWrite  = "uaf-write"
	FindingUseAfterFreeRead   = "uaf-read"
	FindingOutOfBoundsWrite   = "oob-write"
	FindingOutOfBoundsRead    = "oob-read"
	FindingUnderflow          = "underflow"
	FindingDoubleFree         = "double-free"
	FindingForeignFree        = "foreign-free"
	FindingStaleHandle        = "stale-handle"
	FindingMissingFence       = "missing-fence"
	FindingUseBeforeAlloc     = "use-before-alloc-ready"
	FindingUndeclaredAccess   = "undeclared-access"
	FindingUninitializedRead  = "uninitialized-read"
	FindingReuseRace          = "reuse-race"
	FindingSealedWrite        = "sealed-write"
	FindingStrayWrite         = "stray-write"
	FindingLeak               = "leak"
	FindingOutOfMemory        = "oom"
	FindingStickyError        = "sticky-error"
	FindingIllegalAccess      = "illegal-access"
	FindingDroppedRecorder    = "dropped-recorder"
	FindingAccountingMismatch = "accounting"
)

// FindingKinds are all of them.
var FindingKinds = [...]string{
	FindingUseAfterFreeWrite, FindingUseAfterFreeRead, FindingOutOfBoundsWrite, FindingOutOfBoundsRead,
	FindingUnderflow, FindingDoubleFree, FindingForeignFree, FindingStaleHandle,
	FindingMissingFence, FindingUseBeforeAlloc, FindingUndeclaredAccess,
	FindingUninitializedRead, FindingReuseRace, FindingSealedWrite, FindingStrayWrite, FindingLeak,
	FindingOutOfMemory, FindingStickyError, FindingIllegalAccess, FindingDroppedRecorder, FindingAccountingMismatch,
}
