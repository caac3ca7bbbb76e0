package cuda

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/ownwork"
)

// peerEnd is one end of a copy between devices, with what belongs to it alone:
// a runtime hears only of its own driver's errors, because a lost device must
// not take its peer's runtime along.
type peerEnd struct {
	drv     driver.Driver
	runtime *core.Runtime // nil if the memory is not fenced
	streams *StreamPool
	table   *streamTable
	stream  *stream
	lease   core.StreamID
	block   core.BlockID
	access  core.Access
	ticket  core.Ticket
}

func newPeerEnd(memory *memory, access core.Access, lease core.StreamID) (*peerEnd, error) {
	m := memory.manager
	if err := needPool("CopyFromPeer", m.streams); err != nil {
		return nil, err
	}
	s, err := m.streams.table.resolve("CopyFromPeer", lease)
	if err != nil {
		return nil, err
	}
	e := &peerEnd{drv: m.drv, streams: m.streams, table: m.streams.table, stream: s, lease: lease, block: memory.block.ID, access: access}
	if memory.kind == core.TrackedBlock {
		e.runtime = m.runtime
	}
	return e, nil
}

// prepare opens the intent and returns the context of its launch. Without a
// runtime it only keeps captures out.
func (e *peerEnd) prepare(ctx context.Context) (context.Context, error) {
	if e.runtime == nil {
		_, err := e.table.enterUncaptured("CopyFromPeer", e.lease)
		return ctx, err
	}
	req := core.UseRequest{Stream: e.lease, Launch: "copy.from_peer", Uses: []core.Use{{Block: e.block, Access: e.access}}, Wait: true}
	if !e.access.Writes() {
		req.Mark = ownwork.ReadsOnly
	}
	t, err := e.runtime.PrepareUse(ctx, req)
	if err != nil {
		return nil, err
	}
	e.ticket = t
	if e.access == core.Read {
		if err := e.exclude(ctx); err != nil {
			return nil, errors.Join(err, e.end(ctx, false))
		}
	}
	return t.Context(ctx), nil
}

// exclude makes the intent of a source conflict with launches on its own
// stream too, and waits for those that are announced there: the copy is not
// enqueued on that stream, which therefore orders nothing until it has been
// made to wait. Who is waited for has its intent and does not wait in turn.
func (e *peerEnd) exclude(ctx context.Context) error {
	for {
		closed := e.tryExclude()
		if closed == nil {
			return nil
		}
		select {
		case <-closed:
		case <-ctx.Done():
			return fmt.Errorf("CopyFromPeer gave up waiting for a launch on block %v: %w", e.block, ctx.Err())
		}
	}
}

// tryExclude returns nil, or a channel that is closed when one of the launches
// in the way has ended.
func (e *peerEnd) tryExclude() <-chan struct{} {
	b := e.table.lookup(e.block)
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.history.Exclude(e.ticket.Intent().ID, e.access)
}

// end closes the intent.
func (e *peerEnd) end(ctx context.Context, launched bool) error {
	switch {
	case e.runtime == nil:
		e.stream.Leave()
		return nil
	case launched:
		return e.runtime.FinishUse(ctx, e.ticket)
	}
	return e.runtime.AbortUse(ctx, e.ticket)
}

// waitFor makes later work of e's stream wait for what is enqueued on peer's.
// The event goes back to its stream at once: recording it again moves no wait.
func (e *peerEnd) waitFor(peer *peerEnd) error {
	peer.stream.Lock()
	p, err := peer.stream.Record(peer.lease)
	peer.stream.Unlock()
	if err != nil {
		return peer.observed(err)
	}
	defer p.Release()
	return e.observed(e.stream.WaitPeer(peer.drv, p))
}

// observed tells the end's runtime of its driver's error and returns it.
func (e *peerEnd) observed(err error) error {
	if err != nil && e.runtime != nil {
		e.runtime.ReportSticky("CopyFromPeer", err)
	}
	return err
}

// poison takes the block out of use. Its intent is open, so the record is its
// own.
func (e *peerEnd) poison() {
	if e.runtime == nil {
		return
	}
	if b := e.table.lookup(e.block); b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		e.table.poison(b)
	}
}
