package drivertest

import "github.com/fencepost-gpu/fencepost/cuda/driver"

var _ driver.Wrapper = (*Faults)(nil)

// Unwrap is the wrapped driver.
func (f *Faults) Unwrap() driver.Driver { return f.upstream }

// CopyFromPeerAsync passes the call on unless a fault is due. peer is passed
// on as it is; a fault is this end's alone.
func (f *Faults) CopyFromPeerAsync(dst uint64, peer driver.Driver, src, n uint64, s driver.Stream) (err error) {
	if err = f.due(CopyFromPeerAsync); err == nil {
		err = f.upstream.CopyFromPeerAsync(dst, peer, src, n, s)
	}
	f.note(Call{Method: CopyFromPeerAsync, Ptr: dst, Stream: s}, err)
	return err
}

// StreamWaitPeer passes the call on unless a fault is due or the wait is to be
// dropped.
func (f *Faults) StreamWaitPeer(s driver.Stream, peer driver.Driver, e driver.Event) (err error) {
	dropped := false
	if err = f.due(StreamWaitPeer); err == nil {
		if dropped = f.waits.dropped(); !dropped {
			err = f.upstream.StreamWaitPeer(s, peer, e)
		}
	}
	f.note(Call{Method: StreamWaitPeer, Stream: s, Event: e, Dropped: dropped}, err)
	return err
}
