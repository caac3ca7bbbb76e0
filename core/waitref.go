package core

// WaitRef names what a wait was queued for, so that a history can point from
// the one to the other. The zero value names nothing.
type WaitRef uint64

// blockWait marks a reference to a block. Launches and generations are counted
// up from 1, so neither reaches it.
const blockWait WaitRef = 1 << 63

// LaunchWait refers to a launch by its number; see [Intent].
func LaunchWait(id uint64) WaitRef { return WaitRef(id) &^ blockWait }

// BlockWait refers to a block: the wait was for its allocation to be ready, or
// for a use of it that was recorded without a launch.
func BlockWait(g Generation) WaitRef { return WaitRef(g) | blockWait }

// Launch is the launch waited for; false if w names none.
func (w WaitRef) Launch() (id uint64, ok bool) { return uint64(w), w != 0 && w&blockWait == 0 }

// Block is the block waited for; false if w names none.
func (w WaitRef) Block() (g Generation, ok bool) { return Generation(w &^ blockWait), w&blockWait != 0 }
