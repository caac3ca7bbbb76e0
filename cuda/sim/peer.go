package sim

import (
	"cmp"
	"fmt"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// CopyFromPeerAsync copies n bytes from src on peer, another simulated device
// of this process, to dst here, in the order of s. It does not block. The
// oracles of both devices judge it, each its own end. If peer is lost or
// closed when the copy runs, this device's context is lost with
// CUDA_ERROR_ILLEGAL_ADDRESS.
func (d *Device) CopyFromPeerAsync(dst uint64, peer driver.Driver, src, n uint64, s driver.Stream) error {
	o := newOp(opOnDevice, "copy from peer", Writes(dst, n))
	if driver.Unwrap(peer) == driver.Driver(d) {
		o.exec.touches = append(o.exec.touches, Reads(src, n))
		return d.transfer(mCopyFromPeerAsync, o, s)
	}
	o.kind = opFromPeer
	if err := d.copyFromPeer(o, peer, Reads(src, n), s); err != nil || n == 0 {
		o.recycle()
		return err
	}
	return nil
}

func (d *Device) copyFromPeer(o *op, peer driver.Driver, read Range, h driver.Stream) error {
	m := mCopyFromPeerAsync
	p, err := d.lockPair(m, peer)
	if err != nil {
		return err
	}
	defer d.unlockPair(p)
	s, err := d.streams.named(m, h)
	if err != nil {
		return err
	}
	if err := s.prohibited(m); err != nil {
		return err
	}
	if read.Bytes == 0 {
		return nil
	}
	write := o.exec.touches[0]
	if !p.isMapped(read.Ptr, read.Bytes) {
		return notAllocated(m, read, p)
	}
	if !d.isMapped(write.Ptr, write.Bytes) {
		return notAllocated(m, write, d)
	}
	d.catchUp(s)
	o.uses = d.resolve(s, o, o.uses, write)
	o.peer, o.source = p, d.abroad(p, s, read)
	d.push(s, o)
	return nil
}

// abroad is the next operation of s as p's oracle sees it: in the clock of p.
func (d *Device) abroad(p *Device, s *stream, read Range) *op {
	next := stamp{slot: s.slot, seq: s.seq + 1, past: s.past}
	past := p.imported(d.exported(next))
	p.collect()
	o := &op{
		name: fmt.Sprintf("copy to device %d", d.Ordinal()), stream: s.handle, exec: Exec{touches: []Range{read}},
		now: stamp{
			slot: p.slotOf(place{d.number, s.slot}), seq: next.seq,
			past: past.join(stamp{slot: hostSlot, past: p.hostClock}),
		},
	}
	o.uses = p.resolve(s, o, nil, read)
	return o
}

// runPeerCopy does a copy from another device. The guests' lock keeps that
// device's memory from being unmapped meanwhile, and orders nothing else: no
// device's lock is waited for under it.
func (d *Device) runPeerCopy(o *op, dst []byte) {
	p, r := o.peer, o.source.exec.touches[0]
	p.guests.RLock()
	defer p.guests.RUnlock()
	var src []byte
	ok := !p.isDead()
	if ok {
		src, ok = p.reach(r.Ptr, r.Bytes)
	}
	if !ok {
		d.illegalAt(o, r, nil)
		return
	}
	copy(dst, src)
	p.judge(o.source, r)
}

// StreamWaitPeer makes later work of s wait for the current record of h, an
// event of peer, another simulated device of this process. It does not block.
// What the event says of the order on other devices is learned with it.
func (d *Device) StreamWaitPeer(s driver.Stream, peer driver.Driver, h driver.Event) error {
	m := mStreamWaitPeer
	if driver.Unwrap(peer) == driver.Driver(d) {
		return d.streamWait(m, s, h)
	}
	p, err := d.lockPair(m, peer)
	if err != nil {
		return err
	}
	defer d.unlockPair(p)
	st, err := d.streams.named(m, s)
	if err != nil {
		return err
	}
	e, err := p.events.named(m, h)
	if err != nil {
		return err
	}
	if err := cmp.Or(st.prohibited(m), e.prohibited(m)); err != nil {
		return err
	}
	d.catchUp(st)
	r := e.current
	r.abroad = p
	d.queueWait(st, r, stamp{slot: hostSlot, past: d.imported(p.exported(e.clock))})
	return nil
}

// lockPair begins a call of m that touches two devices: it finds the peer and
// locks both, the one that was opened first before the other.
func (d *Device) lockPair(m *method, peer driver.Driver) (*Device, error) {
	if err := d.enter(m); err != nil {
		return nil, err
	}
	p, ok := driver.Unwrap(peer).(*Device)
	if !ok {
		return nil, fault(m, driver.InvalidValue, "the peer is not a simulated device of this process")
	}
	first, second := d, p
	if p.number < d.number {
		first, second = p, d
	}
	first.mu.Lock()
	second.mu.Lock()
	d.join(p)
	for _, each := range [...]*Device{d, p} {
		if each.chooser != nil {
			each.progress()
		}
	}
	err := d.state(m)
	if err == nil && p.isDead() {
		err = fault(m, driver.InvalidContext, fmt.Sprintf("the peer, device %d, was lost or closed; open it anew", p.Ordinal()))
	}
	if err != nil {
		d.unlockPair(p)
		return nil, err
	}
	return p, nil
}

func (d *Device) unlockPair(p *Device) {
	d.mu.Unlock()
	p.mu.Unlock()
}
