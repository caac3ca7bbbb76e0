package fence

import "github.com/fencepost-gpu/fencepost/core"

// Access is one outstanding use of a block: work that a later use or the
// free may have to wait for.
type Access struct {
	point *Point
	kind  core.Access
	// span is the finish or alloc span of the work, for links.
	span core.SpanRef
	// onPeer: until the point is placed the work runs on another device, and is in
	// no stream's order.
	onPeer bool
}

// Holder names the launch of the access, for the error of one that it is in the way of.
func (a *Access) Holder() *core.UseRecord {
	return &core.UseRecord{Launch: a.point.name, Stream: a.point.lease, Access: a.kind}
}

// WaitEnded returns a channel that is closed when the launch of the access has ended.
// The block must be locked, and the access still be among its history.
func (a *Access) WaitEnded() <-chan struct{} { return a.point.waitEnded() }

// isBefore reports what b.covers(a) does, where both are of one stream and placed; false if
// they are not.
func (a *Access) isBefore(b *Access) bool {
	p, next := a.point, b.point
	return p.stream == next.stream && (b.kind.Writes() || !a.kind.Writes()) && p.isPlaced() && next.isPlaced() && p.seq <= next.seq
}

// covers reports whether whoever waits for a need not wait for b, which is
// placed: b is ordered before a, and whatever must wait for b must wait for a.
func (a *Access) covers(b *Access) bool {
	return (a.kind.Writes() || !b.kind.Writes()) && a.point.isPlaced() && a.point.clock.covers(b.point.stream.slot, b.point.seq)
}
