package coretest

import (
	"bytes"
	"context"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// The device cases look at bytes, not at pointers: a fence that is missing
// shows as wrong data. Stalls make sure that it would.
var deviceCases = []testCase{
	{name: "a read waits for a write on another stream", device: true, needs: core.UseTracking, run: (*trial).readAfterWrite},
	{name: "a write waits for reads on other streams", device: true, needs: core.UseTracking, run: (*trial).writeAfterReads},
	{name: "reads on two streams overlap", device: true, needs: core.UseTracking, run: (*trial).readsOverlap},
	{name: "memory is reused only after all its readers", device: true, needs: core.UseTracking, room: 64 * mib, run: (*trial).reuseAfterReaders},
	{name: "memory is reused only after a recorded use", device: true, needs: core.UseTracking, room: 64 * mib, run: (*trial).reuseAfterRecordedUse},
	{name: "bytes survive a merge of freed memory across streams", device: true, room: 64 * mib, needs: core.StreamOrdered, run: (*trial).mergeAcrossStreams},
	{name: "reap does not block and releases nothing early", device: true, needs: core.StreamOrdered, run: (*trial).reapNeverBlocks},
	{name: "drain waits for the device and heeds its context", device: true, needs: core.StreamOrdered, run: (*trial).drainIsBounded},
}

const tile = 64 * kib // large enough that a torn copy shows

// filled is a tile of one value.
func filled(value byte) []byte { return bytes.Repeat([]byte{value}, int(tile)) }

// do fails the test if work enqueued between prepare and finish fails.
func (t *trial) do(stream core.StreamID, access core.Access, b core.Block, work func() error) {
	t.Helper()
	t.succeed(t.launch(stream, access, b, work), "launch")
}

func (t *trial) doWrite(stream core.StreamID, b core.Block, value byte) {
	t.Helper()
	t.do(stream, core.Write, b, func() error { return t.Device.Write(stream, b.ID.Ptr, filled(value)) })
}

func (t *trial) doRead(stream core.StreamID, b core.Block) []byte {
	t.Helper()
	got := make([]byte, tile)
	t.do(stream, core.Read, b, func() error { return t.Device.Read(stream, b.ID.Ptr, got) })
	return got
}

// syncAll waits for the streams, for a bounded time. It must be called after
// every stall was released.
func (t *trial) syncAll(streams ...core.StreamID) {
	t.Helper()
	for _, stream := range streams {
		var err error
		if !t.promptly("sync of stream "+stream.String(), func() { err = t.Device.Sync(stream) }) {
			t.FailNow()
		}
		t.succeed(err, "sync of stream "+stream.String())
	}
}

// stall holds a stream back until release, or the end of the test.
func (t *trial) stall(stream core.StreamID) (release func()) {
	release = t.Device.Stall(stream)
	t.Cleanup(release)
	return release
}

func (t *trial) holds(got []byte, value byte, what string) {
	t.Helper()
	wrong := 0
	for _, v := range got {
		if v != value {
			wrong++
		}
	}
	t.check(wrong == 0, "%s: %d of %d bytes are not %#x", what, wrong, len(got), value)
}

func (t *trial) readAfterWrite() {
	writer, reader := t.Streams(t), t.Streams(t)
	b := t.alloc(tile, writer)
	t.doWrite(writer, b, 0x11)
	t.syncAll(writer)
	release := t.stall(writer)
	t.doWrite(writer, b, 0x22)

	ticket := t.prepare(reader, core.Read, b)
	t.check(ticket.Waits() >= 1, "a read of what a stalled stream writes queued no wait")
	got := make([]byte, tile)
	t.succeed(t.Device.Read(reader, b.ID.Ptr, got), "read")
	t.finish(ticket)
	time.Sleep(5 * time.Millisecond) // a reader that does not wait reads now
	release()
	t.syncAll(writer, reader)
	t.holds(got, 0x22, "the reader's bytes")
	t.free(b)
}

func (t *trial) writeAfterReads() {
	writer, readers := t.Streams(t), []core.StreamID{t.Streams(t), t.Streams(t), t.Streams(t)}
	b := t.alloc(tile, writer)
	t.doWrite(writer, b, 0x11)
	t.syncAll(writer)
	var got [][]byte
	var releases []func()
	for _, reader := range readers {
		releases = append(releases, t.stall(reader))
		got = append(got, t.doRead(reader, b))
	}
	t.doWrite(writer, b, 0x22)
	time.Sleep(5 * time.Millisecond) // a writer that does not wait writes now
	for _, release := range releases {
		release()
	}
	t.syncAll(append(readers, writer)...)
	for i := range got {
		t.holds(got[i], 0x11, "reader "+readers[i].String())
	}
	t.holds(t.finalBytes(writer, b), 0x22, "the block in the end")
	t.free(b)
}

func (t *trial) finalBytes(stream core.StreamID, b core.Block) []byte {
	t.Helper()
	got := t.doRead(stream, b)
	t.syncAll(stream)
	return got
}

// readsOverlap would hang in sync if reads were ordered after each other.
func (t *trial) readsOverlap() {
	home, slow, fast := t.Streams(t), t.Streams(t), t.Streams(t)
	b := t.alloc(tile, home)
	t.doWrite(home, b, 0x33)
	t.syncAll(home)
	release := t.stall(slow)
	first := t.doRead(slow, b)
	second := t.doRead(fast, b)
	t.syncAll(fast)
	t.holds(second, 0x33, "the reader that is not stalled")
	release()
	t.syncAll(slow)
	t.holds(first, 0x33, "the stalled reader")
	t.free(b)
}

// reuseAfterReaders frees a block while one of its readers is stalled, and lets
// another stream allocate the same size and write. Each of the readers has its
// turn at being the one that holds the memory.
func (t *trial) reuseAfterReaders() {
	home, thief := t.Streams(t), t.Streams(t)
	readers := []core.StreamID{t.Streams(t), t.Streams(t), t.Streams(t)}
	for _, slow := range readers {
		b := t.alloc(tile, home)
		t.doWrite(home, b, 0x44)
		t.syncAll(home)
		release := t.stall(slow)
		var got [][]byte
		for _, reader := range readers {
			got = append(got, t.doRead(reader, b))
		}
		t.steal(b, thief, release)
		t.syncAll(readers...)
		for i := range got {
			t.holds(got[i], 0x44, "reader "+readers[i].String()+" while "+slow.String()+" was stalled")
		}
	}
}

func (t *trial) reuseAfterRecordedUse() {
	home, other, thief := t.Streams(t), t.Streams(t), t.Streams(t)
	b := t.alloc(tile, home)
	t.doWrite(home, b, 0x55)
	t.syncAll(home)
	release := t.stall(other)
	got := make([]byte, tile)
	t.succeed(t.Device.Read(other, b.ID.Ptr, got), "read without prepared waits")
	t.succeed(t.Resource.RecordUse(t.ctx, b.ID, other), "record the use")
	t.steal(b, thief, release)
	t.syncAll(other)
	t.holds(got, 0x55, "the recorded reader")
}

// steal frees b while something holds it, has thief allocate and overwrite
// what it can get, and then lets go.
func (t *trial) steal(b core.Block, thief core.StreamID, release func()) {
	t.Helper()
	t.free(b)
	time.Sleep(5 * time.Millisecond) // a free that does not wait for the use is passed now
	t.succeed(t.Resource.ReapPending(t.ctx), "reap")
	t.notPassed(b, "a use is stalled")
	var loot []core.Block
	for range 3 {
		taken := t.alloc(tile, thief)
		t.doWrite(thief, taken, 0xee)
		loot = append(loot, taken)
	}
	time.Sleep(5 * time.Millisecond) // memory that is reused too early is overwritten now
	release()
	t.syncAll(thief)
	for _, taken := range loot {
		t.holds(t.finalBytes(thief, taken), 0xee, "the newer block")
		t.free(taken)
	}
}

// notPassed demands that a block which was given back is in the books, because the device has
// not come to its free. Where blocks are released in order it is not: there the bytes tell.
func (t *trial) notPassed(b core.Block, why string) {
	t.Helper()
	if t.Resource.Features().Has(core.OrderedRelease) {
		return
	}
	t.check(t.books.notices(b) == 0 && t.Resource.State(b.ID) != core.Freed, "the block was released although %s", why)
	t.check(t.Resource.Stats().Outstanding().Requested >= t.before.Outstanding().Requested+tile, "the block left the books although %s", why)
}

// mergeAcrossStreams is the data race that RMM's pool had (RMM issue 2490):
// memory freed on a stream with work queued was merged and handed to another.
func (t *trial) mergeAcrossStreams() {
	a, b, c := t.Streams(t), t.Streams(t), t.Streams(t)
	victim := t.alloc(mib, a)
	release := t.stall(a)
	t.do(a, core.Write, victim, func() error {
		return t.Device.Write(a, victim.ID.Ptr, bytes.Repeat([]byte{0xaa}, int(mib)))
	})
	t.free(victim)
	large, err := t.allocate(core.Request{Bytes: pib, Stream: b})
	t.refused(err, "an unsatisfiable size, to force a merge", core.ErrOutOfMemory, core.ErrOutOfBudget)
	t.check(large.ID.Ptr == 0, "the unsatisfiable size got the address %#x", large.ID.Ptr)

	heir := t.alloc(mib, c)
	t.do(c, core.Write, heir, func() error {
		return t.Device.Write(c, heir.ID.Ptr, bytes.Repeat([]byte{0xcc}, int(mib)))
	})
	time.Sleep(5 * time.Millisecond)
	release()
	t.syncAll(a, c)
	got := make([]byte, mib)
	t.do(c, core.Read, heir, func() error { return t.Device.Read(c, heir.ID.Ptr, got) })
	t.syncAll(c)
	t.holds(got, 0xcc, "the heir's bytes")
	t.free(heir)
}

func (t *trial) reapNeverBlocks() {
	stream := t.Streams(t)
	b := t.alloc(tile, stream)
	release := t.stall(stream)
	t.do(stream, core.Write, b, func() error { return t.Device.Write(stream, b.ID.Ptr, filled(1)) })
	t.free(b)
	time.Sleep(5 * time.Millisecond)
	var err error
	if t.promptly("reap over a stalled stream", func() { err = t.Resource.ReapPending(t.ctx) }) {
		t.succeed(err, "reap over a stalled stream")
	}
	t.notPassed(b, "its stream is stalled")
	release()
	t.syncAll(stream)
	t.drain()
	t.check(t.books.notices(b) == 1, "after drain the release was told %d times", t.books.notices(b))
}

func (t *trial) drainIsBounded() {
	stream := t.Streams(t)
	b := t.alloc(tile, stream)
	release := t.stall(stream)
	t.do(stream, core.Write, b, func() error { return t.Device.Write(stream, b.ID.Ptr, filled(1)) })
	t.free(b)
	ctx, cancel := context.WithTimeout(t.ctx, 20*time.Millisecond)
	defer cancel()
	var err error
	if t.promptly("drain over a stalled stream", func() { err = t.Resource.Drain(ctx) }) {
		t.refused(err, "drain over a stalled stream", context.DeadlineExceeded)
	}
	t.notPassed(b, "its stream is stalled")
	release()
	t.drain()
	t.check(t.Resource.State(b.ID) == core.Freed, "after drain the block is %v", t.Resource.State(b.ID))
}
