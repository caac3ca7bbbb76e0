package drivertest

import "sync/atomic"

// waits says which StreamWait and StreamWaitPeer calls are swallowed.
type waits struct {
	left atomic.Int64
	all  atomic.Bool
}

func (w *waits) dropped() bool {
	return w.all.Load() || w.left.Load() > 0 && w.left.Add(-1) == 0
}

// DropWait makes the k-th StreamWait or StreamWaitPeer from now return success without reaching
// the driver. k counts from 1; 0 disarms.
func (f *Faults) DropWait(k uint64) { f.waits.left.Store(int64(k)) }

// DropWaits makes every one of them do so while on is true.
func (f *Faults) DropWaits(on bool) { f.waits.all.Store(on) }
