package coretest

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// releasedLease leases its stream in a subtest, whose cleanup ends the lease.
func (t *trial) releasedLease() {
	var stream core.StreamID
	var b core.Block
	t.TB.(*testing.T).Run("lease", func(sub *testing.T) {
		stream = t.Streams(sub)
		b = t.alloc(64, stream)
		t.finish(t.prepare(stream, core.Write, b))
		t.succeed(t.sync(stream), "sync")
	})
	_, err := t.allocate(core.Request{Bytes: 64, Stream: stream})
	t.refused(err, "allocate under a released lease", core.ErrStreamMisuse)
	t.refusedOn(stream, b)
	other := t.Streams(t)
	t.check(other != stream, "stream number %v was given out twice", stream)
	t.finish(t.prepare(other, core.ReadWrite, b))
	t.free(b)
}

// zeroValues calls everything with nothing: whoever forgot to set a variable
// gets an error, not a crash of the process.
func (t *trial) zeroValues() {
	r := t.Resource
	var id core.BlockID
	want := core.ErrUseAfterFree
	if r.Ordinal() != 0 {
		want = core.ErrStreamMisuse
	}
	t.refusedEverywhere(id, "the zero block", want)
	t.refused(r.FinishUse(t.ctx, core.Ticket{}), "finish of the zero ticket", core.ErrStreamMisuse)
	t.refused(r.AbortUse(t.ctx, core.Ticket{}), "abort of the zero ticket", core.ErrStreamMisuse)
	t.check(r.ReleaseClaim(t.ctx, 0) != nil, "the zero claim was released")
	t.check(r.State(id) == core.Freed, "the zero block is %v", r.State(id))
	t.check(r.FreedOn(noStream) == (core.FreeCounters{}), "a stream that never was has freed %+v", r.FreedOn(noStream))
	if t.tracks() {
		_, err := t.tryPrepare(core.DefaultStream, "", core.Use{})
		t.refused(err, "prepare of the zero use", core.ErrInvalidRequest)
		b := t.alloc(64, core.DefaultStream)
		_, err = t.tryPrepare(core.DefaultStream, "", core.Use{Block: b.ID})
		t.refused(err, "prepare without an access", core.ErrInvalidRequest)
		t.free(b)
	}
}
