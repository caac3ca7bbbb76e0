package sim

import "github.com/fencepost-gpu/fencepost/cuda/driver"

// CopyFromPeerAsync is refused so far.
func (d *Device) CopyFromPeerAsync(dst uint64, peer driver.Driver, src, n uint64, s driver.Stream) error {
	return fault(mCopyFromPeerAsync, driver.NotSupported, "no peers yet")
}

// StreamWaitPeer is refused so far.
func (d *Device) StreamWaitPeer(s driver.Stream, peer driver.Driver, e driver.Event) error {
	return fault(mStreamWaitPeer, driver.NotSupported, "no peers yet")
}
