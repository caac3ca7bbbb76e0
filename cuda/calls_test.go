package cuda_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// The tests of this file name every call of the driver's that an operation
// costs: the runtime's own, for kernels go past what counts. No reaper ticks.

// calls lists what the driver is asked during f, such as "EventRecord 1".
func (b *bench) calls(f func()) string {
	b.Helper()
	before := map[drivertest.Method]uint64{}
	for _, m := range drivertest.Methods() {
		before[m] = b.faults.Calls(m)
	}
	f()
	var made []string
	for _, m := range drivertest.Methods() {
		if n := b.faults.Calls(m) - before[m]; n > 0 {
			made = append(made, fmt.Sprintf("%v %d", m, n))
		}
	}
	return strings.Join(made, ", ")
}

// launchCalls lists what the fences of one launch cost the driver.
func (b *bench) launchCalls(on *cuda.Lease, uses ...[]use) string {
	b.Helper()
	return b.calls(func() { b.Helper(); b.launch(on, uses...) })
}

const (
	oneRecord       = "EventRecord 1"
	oneWaitOneEvent = "EventRecord 1, StreamWait 1"
)

// warm gives the streams the driver events that their launches use in turn.
func (b *bench) warm(on []*cuda.Lease, blocks ...core.Block) {
	b.Helper()
	for range 3 {
		for _, l := range on {
			b.launch(l, writes(blocks...))
		}
	}
}

func TestCallsOfALaunchDoNotGrowWithItsBlocks(t *testing.T) {
	for _, n := range []int{1, 8, 256} {
		b := newBench(t)
		s := b.leases(2)
		blocks := b.allocs(s[0], n, 256)
		first := "EventRecord 1" // a second allocation has made the event, to have one in reserve
		if n == 1 {
			first = "EventCreate 1, EventRecord 1"
		}
		equal(t, "the first launch writes what was allocated", b.launchCalls(s[0], writes(blocks...)), first)
		b.warm(s, blocks...)
		equal(t, "written by the other stream", b.launchCalls(s[0], writes(blocks...)), oneWaitOneEvent)
		for _, access := range []func(...core.Block) []use{writes, reads, readWrites} {
			equal(t, "on one stream", b.launchCalls(s[0], access(blocks...)), oneRecord)
		}
		equal(t, "read elsewhere", b.launchCalls(s[1], reads(blocks...)), oneWaitOneEvent)
		equal(t, "read there again", b.launchCalls(s[1], reads(blocks...)), oneRecord)
		abort := func() { must(t, b.Runtime.AbortUse(ctx, b.prepare(s[1], reads(blocks...)))) }
		abort() // may make an event
		equal(t, "aborted", b.calls(abort), "")
		b.free(blocks...)
	}
}

// Blocks that one launch each has written are one dependency, not many.
func TestCallsOfALaunchDoNotGrowWithTheLaunchesBefore(t *testing.T) {
	for _, n := range []int{1, 8, 256} {
		b := newBench(t)
		s := b.leases(2)
		blocks := b.allocs(s[0], n, 256)
		b.warm(s, blocks...)
		for _, block := range blocks {
			b.launch(s[0], writes(block))
		}
		equal(t, "written by launches of another stream", b.launchCalls(s[1], writes(blocks...)), oneWaitOneEvent)
		b.free(blocks...)
	}
}

func TestPingPongCostsOneWaitAndOneRecordForEver(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	b.warm(s, block)
	const launches = 1000
	for i := range launches {
		if got := b.launchCalls(s[i%2], writes(block)); got != oneWaitOneEvent {
			t.Fatalf("launch %d: %s", i, got)
		}
	}
	b.free(block)
}

func TestCallsOfOneWriterAndSixteenReaders(t *testing.T) {
	b := newBench(t)
	s := b.leases(17)
	block := b.alloc(s[0], 256)
	writer, readers := s[0], s[1:]
	for round := range 5 {
		first := "EventRecord 1, StreamWait 16" // back from the readers
		if round == 0 {
			first = "EventCreate 1, EventRecord 1"
		}
		got := b.launchCalls(writer, writes(block))
		if round != 1 { // the writer's second event is made
			equal(t, fmt.Sprintf("round %d: the writer", round), got, first)
		}
		for i, reader := range readers {
			got := b.launchCalls(reader, reads(block))
			if round > 1 { // their events are made
				equal(t, fmt.Sprintf("round %d: reader %d", round, i), got, oneWaitOneEvent)
			}
		}
	}
	equal(t, "waits of all rounds", b.faults.Calls(drivertest.StreamWait), 5*16+4*16)
	b.free(block)
}

// Z is ordered after X by its wait for Y, which waited for X: whether it reads
// X's block beside Y's, afterwards, or writes what it never read.
func TestAChainNeedsNoSecondWait(t *testing.T) {
	b := newBench(t)
	s := b.leases(3)
	x, y, z := s[0], s[1], s[2]
	blockX, blockY := b.alloc(x, 256), b.alloc(y, 256)
	b.warm(s, blockX, blockY)
	for round, launches := range [][][]use{
		{}, // makes the events that a chain needs
		{reads(blockX, blockY), reads(blockX)},
		{reads(blockY), reads(blockX)},
		{reads(blockY), writes(blockX)},
		{reads(blockX, blockY), writes(blockX)},
	} {
		write := b.launchCalls(x, writes(blockX))
		read := b.launchCalls(y, reads(blockX), writes(blockY))
		if round == 0 {
			b.launch(z, reads(blockX, blockY))
			continue
		}
		equal(t, "X after Z, which was after Y", write, oneWaitOneEvent)
		equal(t, "Y reads of X", read, oneWaitOneEvent)
		equal(t, "Z after Y", b.launchCalls(z, launches[0]), oneWaitOneEvent)
		equal(t, "Z after X", b.launchCalls(z, launches[1]), oneRecord)
	}
	b.free(blockX, blockY)
}

// A life on one stream costs the launch's event and no other: none for the
// allocation, none for the free, and no wait.
func TestALifeOnOneStreamCostsItsLaunchesEventOnly(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	life := func() {
		block := b.alloc(l, 256)
		b.launch(l, writes(block))
		b.launch(l, reads(block))
		b.free(block)
	}
	for range 64 { // looks at the queue are due every 16 lives
		life()
	}
	b.drain()
	for i := range 15 {
		equal(t, fmt.Sprintf("life %d", i), b.calls(life), "EventRecord 2, MemAllocAsync 1, MemFreeAsync 1")
	}
}

// A pair on the default stream asks the driver nothing over the own pool, served at once or not, and over the driver's
// once for each half whether work may be enqueued there.
func TestAPairOnTheDefaultStreamAsksWhereItEnqueues(t *testing.T) {
	for _, c := range []struct {
		how  []func(*teststack.Config)
		want string
	}{{nil, "MemAllocAsync 1, MemFreeAsync 1, StreamCapturing 2"}, {[]func(*teststack.Config){pooled(0)}, ""}, {[]func(*teststack.Config){pooled(0), prepared}, ""}} {
		b := newBench(t, c.how...)
		pair := func() {
			block, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 256})
			must(t, err)
			b.free(block)
		}
		pair()
		equal(t, "calls of a pair", b.calls(pair), c.want)
	}
}

// Frees are marked by one event for 32 operations of their stream.
func TestALookAtTheQueueIsSharedByItsFrees(t *testing.T) {
	const lives, looks = 1600, 1600 * 2 / 32
	b := newBench(t)
	l := b.leases(1)[0]
	for range 64 {
		b.free(b.alloc(l, 256))
	}
	before := map[drivertest.Method]uint64{}
	kinds := []drivertest.Method{drivertest.StreamWait, drivertest.EventCreate, drivertest.EventRecord, drivertest.EventQuery, drivertest.EventSynchronize}
	for _, m := range kinds {
		before[m] = b.faults.Calls(m)
	}
	for range lives {
		b.free(b.alloc(l, 256))
	}
	made := func(m drivertest.Method) uint64 { return b.faults.Calls(m) - before[m] }
	equal(t, "waits", made(drivertest.StreamWait), 0)
	// a look that sees an older mark passed records the next and asks for that, too
	if made(drivertest.EventRecord) > looks || made(drivertest.EventSynchronize) > looks || made(drivertest.EventQuery) > 2*looks {
		t.Errorf("%d frees cost %d records, %d synchronises, %d queries, want at most %d, %d, %d", lives,
			made(drivertest.EventRecord), made(drivertest.EventSynchronize), made(drivertest.EventQuery), looks, looks, 2*looks)
	}
	if made(drivertest.EventCreate) > 1 {
		t.Errorf("%d events were made in a steady state", made(drivertest.EventCreate))
	}
}

func TestFreesOfBlocksUsedElsewhereCostAQuestionOnly(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	used, done, unused := b.alloc(s[0], 256), b.alloc(s[0], 256), b.alloc(s[0], 256)
	b.warm(s, done)
	b.sync(s...)
	release := b.hold(s[1])
	b.launch(s[1], reads(used))
	equal(t, "a block that nobody used", b.calls(func() { b.free(unused) }), "MemFreeAsync 1")
	equal(t, "a block of which the host knows that its use elsewhere is done", b.calls(func() { b.free(done) }), "MemFreeAsync 1")
	equal(t, "a block that another stream uses", b.calls(func() { b.free(used) }), "EventQuery 1")
	release()
}

// The host learns by an event of one stream how far others have come, but the
// driver is told of each mark behind frees: without that its pool keeps the
// memory.
func TestTheDriverIsToldOfFreesThatAreKnownByAnotherStream(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	freed, shared := b.alloc(s[0], 256), b.alloc(s[0], 256)
	release := b.hold(s[0])
	b.free(freed)
	must(t, b.Runtime.ReapPending(ctx)) // records the mark, which is not passed
	b.launch(s[0], writes(shared))
	b.launch(s[1], reads(shared))
	release()
	b.sync(s[1])
	queries, told := b.faults.Calls(drivertest.EventQuery), b.faults.Calls(drivertest.EventSynchronize)
	must(t, b.Runtime.ReapPending(ctx))
	equal(t, "pending", b.Runtime.Stats().Pending.Blocks, 0)
	equal(t, "questions about what is known", b.faults.Calls(drivertest.EventQuery)-queries, 0)
	equal(t, "marks that the driver was told of", b.faults.Calls(drivertest.EventSynchronize)-told, 1)
	b.free(shared)
}
