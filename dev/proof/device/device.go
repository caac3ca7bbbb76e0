// Package device is a driver that runs nothing: it writes down what is put on
// its streams, in which order, and what waits for what, as a history for the
// oracle. What of it has been executed is for its user to say.
package device

import (
	"errors"
	"slices"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
)

// MaxStreams is how many streams can be made, the default one included: enough
// for programs that give them up.
const MaxStreams = 250

// ErrNowhere means that a block lies where the device has no memory.
var ErrNowhere = errors.New("a block lies where nothing is mapped")

// Device is a [driver.Driver] for programs of one goroutine at a time. Calls
// that no such program makes do nothing.
type Device struct {
	drivertest.Null
	// History is what happened since the last Reset.
	History *oracle.History
	// Call is what the next calls are made for.
	Call
	// Since is the moment when the call began that they are made in, if calls
	// overlap; 0 otherwise.
	Since int32
	// Known is then the moment when the event was recorded that is waited for.
	Known int32
	// Drop is the number of a wait since the last Reset, from 1, that is not
	// queued although the caller is told so; 0 for none.
	Drop int
	// Hosted: the host allocates, so allocations and frees take no time.
	Hosted bool
	// Forgetful: what the host has seen done orders nothing.
	Forgetful bool
	// Calls counts the calls of a kind since the last Reset.
	Calls Calls

	// Refuse makes the driver refuse the next record of an event.
	Refuse bool

	made   uint8 // streams
	events []int32
	alive  int // events
	// frees are the nodes of the blocks' frees, by block.
	frees [oracle.MaxBlocks]int32
	// freed is the memory that may be used again, newest last.
	freed []freed
	next  uint8
	addrs map[uint64]living
	pages
	// allocating is the stream on which the host allocates behind an open launch; ready is the event that
	// was recorded there last meanwhile.
	allocating uint8
	ready      driver.Event
	// executed are nodes that the device has done, with all before them.
	executed []int32
	allDone  bool
}

// Call is a call of the runtime's for an operation of a program.
type Call struct {
	Op int16
	// Block is what an allocation makes.
	Block uint8
	// Aborted: it is for a launch that comes to nothing.
	Aborted bool
	// Done: the device is done with all that the call asks for, where calls overlap.
	Done bool
}

// Begin says what the next calls are made for.
func (d *Device) Begin(c Call) { d.Call = c }

// End says that a call of the runtime's has returned.
func (d *Device) End() {}

// Calls are numbers of driver calls.
type Calls struct{ Records, Waits int }

// freed is memory and the node of its free.
type freed struct {
	addr uint8
	node int32
}

type living struct{ addr, block uint8 }

// done stands for the record of an event that was executed before the last
// Reset, or that there never was.
const done = -1

// destroyed stands for the record of an event that was given back.
const destroyed = -2

// never is in place of the free of a block that was not freed.
const never = -1

// noStream is in place of the stream of an allocation.
const noStream = 0xff

// New returns a device without streams but the default one.
func New() *Device {
	d := &Device{History: oracle.New(MaxStreams), made: 1, addrs: map[uint64]living{}}
	d.table = map[uint64]*mapping{}
	d.Reset()
	return d
}

// peerStreams is the first stream of a peer's.
const peerStreams = MaxStreams / 2

// NewPeer returns another device, whose streams are in the history of d with other
// numbers.
func NewPeer(d *Device) *Device {
	p := New()
	p.History, p.Number, p.made = d.History, d.Number+1, peerStreams
	return p
}

// Reset forgets the history: all of it counts as executed. What is mapped stays so.
func (d *Device) Reset() {
	d.History.Reset()
	d.freed, d.next, d.Calls, d.allDone, d.Refuse = d.freed[:0], 0, Calls{}, false, false
	clear(d.addrs)
	d.unmapped, d.torn, d.allocating, d.blocks = 0, 0, noStream, [oracle.MaxBlocks]extent{}
	for i := range d.events {
		if d.events[i] != destroyed {
			d.events[i] = done
		}
	}
	for b := range d.frees {
		d.frees[b] = never
	}
	d.executed, d.Reuse = d.executed[:0], Reuse{}
}

// Finish makes the device execute all that is and will be put on its streams.
func (d *Device) Finish() { d.allDone = true }

// Execute makes the device execute what is on a stream, and what that waits
// for.
func (d *Device) Execute(stream uint8) { d.execute(d.History.Last(stream)) }

func (d *Device) execute(node int32) {
	if !d.isDone(node) {
		d.executed = append(d.executed, node)
	}
}

func (d *Device) isDone(node int32) bool {
	if d.allDone || node == done {
		return true
	}
	if slices.ContainsFunc(d.executed, func(e int32) bool { return e == node || d.History.Ordered(node, e) }) {
		return true
	}
	return d.Hosted && d.History.Nodes()[node].Kind != oracle.Work && d.worksDone(node)
}

// worksDone reports whether the device has done all work that a node comes after.
func (d *Device) worksDone(node int32) bool {
	for i, n := range d.History.Nodes()[:node] {
		if n.Kind == oracle.Work && d.History.Ordered(int32(i), node) && !d.isDone(int32(i)) {
			return false
		}
	}
	return true
}

// Freed reports whether the device has executed the free of a program's block, or
// nothing is mapped there any more.
func (d *Device) Freed(block uint8) bool {
	if d.unmapped>>block&1 != 0 {
		return true
	}
	return d.frees[block] != never && d.isDone(d.frees[block])
}

// Events is how many events there are.
func (d *Device) Events() int { return d.alive }

// String is the kind of device.
func (d *Device) String() string { return "history" }

// StreamCreate makes a stream.
func (d *Device) StreamCreate() (driver.Stream, error) {
	if d.made == MaxStreams {
		return 0, driver.NewError("StreamCreate", driver.OutOfMemory)
	}
	d.made++
	return driver.Stream(d.made - 1), nil
}

// Newest is the stream that was made last.
func (d *Device) Newest() uint8 { return d.made - 1 }

// EventCreate makes an event.
func (d *Device) EventCreate() (driver.Event, error) {
	d.alive++
	d.events = append(d.events, done)
	return driver.Event(len(d.events)), nil
}

// EventDestroy takes the event away; a second time that is an error.
func (d *Device) EventDestroy(e driver.Event) error {
	if d.events[e-1] == destroyed {
		return driver.NewError("EventDestroy", driver.InvalidHandle)
	}
	d.events[e-1] = destroyed
	d.alive--
	return nil
}

// EventRecord notes what is newest on the stream.
func (d *Device) EventRecord(e driver.Event, s driver.Stream) error {
	if d.events[e-1] == destroyed {
		return driver.NewError("EventRecord", driver.InvalidHandle)
	}
	if d.Refuse {
		d.Refuse = false
		return driver.NewError("EventRecord", driver.OutOfMemory)
	}
	d.Calls.Records++
	d.events[e-1] = d.History.Last(uint8(s))
	if s == driver.Stream(d.allocating) {
		d.ready = e
	}
	return nil
}

// StreamWaitPeer notes a wait for an event of another device's, which must be peer
// itself.
func (d *Device) StreamWaitPeer(s driver.Stream, peer driver.Driver, e driver.Event) error {
	if d.Calls.Waits++; d.Calls.Waits == d.Drop {
		return nil
	}
	of, ok := peer.(*Device)
	if !ok || e == 0 {
		return driver.NewError("StreamWaitPeer", driver.InvalidHandle)
	}
	d.History.Add(oracle.Node{Kind: oracle.Wait, Stream: uint8(s), Op: d.Op, From: of.events[e-1]})
	return nil
}

// CopyFromPeerAsync is the work of a launch that writes Block and reads what was
// copied.
func (d *Device) CopyFromPeerAsync(_ uint64, _ driver.Driver, _, _ uint64, s driver.Stream) error {
	d.History.Add(oracle.Node{Kind: oracle.Work, Stream: uint8(s), Op: d.Op, Writes: 1 << d.Block})
	return nil
}

// StreamWait notes the wait.
func (d *Device) StreamWait(s driver.Stream, e driver.Event) error {
	if d.Calls.Waits++; d.Calls.Waits == d.Drop {
		return nil
	}
	if e == 0 {
		return driver.NewError("StreamWait", driver.InvalidHandle)
	}
	if s == driver.Stream(d.allocating) {
		d.ready = 0
	}
	d.History.Add(oracle.Node{Kind: oracle.Wait, Stream: uint8(s), Op: d.Op, Aborted: d.Aborted, From: d.events[e-1], Since: d.Since, Known: d.Known})
	return nil
}

// EventQuery reports whether what was recorded is executed. The host knows
// it from then on.
func (d *Device) EventQuery(e driver.Event) (bool, error) {
	if d.ready == e {
		d.ready = 0
	}
	node := d.events[e-1]
	if node == destroyed {
		return false, driver.NewError("EventQuery", driver.InvalidHandle)
	}
	if !d.isDone(node) {
		return false, nil
	}
	d.learn(node)
	return true, nil
}

// EventSynchronize executes what was recorded.
func (d *Device) EventSynchronize(e driver.Event) error {
	node := d.events[e-1]
	if node == destroyed {
		return driver.NewError("EventSynchronize", driver.InvalidHandle)
	}
	d.execute(node)
	d.learn(node)
	return nil
}

// learn notes that the host has seen a node done.
func (d *Device) learn(node int32) {
	if !d.Forgetful {
		d.History.Learn(node)
	}
}

// StreamSynchronize executes all of the stream. After Finish there is nothing to
// do, and several goroutines may call it: so a pool of streams is closed.
func (d *Device) StreamSynchronize(s driver.Stream) error {
	if d.allDone {
		return nil
	}
	d.Execute(uint8(s))
	d.learn(d.History.Last(uint8(s)))
	return nil
}

// MemAllocAsync takes the memory that was freed last of that which the stream
// is ordered after: so the driver may, and so a fence that lacks shows most.
// What was freed elsewhere and happens to be done is not taken, although the
// driver may do that too: it would know of that order alone.
func (d *Device) MemAllocAsync(_ uint64, _ driver.Pool, s driver.Stream) (uint64, error) {
	addr := d.take(uint8(s))
	d.History.Add(oracle.Node{Kind: oracle.Alloc, Stream: uint8(s), Op: d.Op, Block: d.Block, Cells: 1 << addr})
	ptr := uint64(addr+1) * Unit
	d.addrs[ptr] = living{addr, d.Block}
	return ptr, nil
}

func (d *Device) take(s uint8) uint8 {
	for i := len(d.freed) - 1; i >= 0; i-- {
		f := d.freed[i]
		if d.History.After(s, f.node) {
			d.freed = append(d.freed[:i], d.freed[i+1:]...)
			return f.addr
		}
	}
	d.next++
	return d.next - 1
}

// MemFreeAsync notes the free.
func (d *Device) MemFreeAsync(ptr uint64, s driver.Stream) error {
	was, ok := d.addrs[ptr]
	if !ok {
		return driver.NewError("MemFreeAsync", driver.InvalidValue)
	}
	delete(d.addrs, ptr)
	node := d.History.Add(oracle.Node{Kind: oracle.Free, Stream: uint8(s), Op: d.Op, Block: was.block, Cells: 1 << was.addr})
	d.freed = append(d.freed, freed{was.addr, node})
	d.frees[was.block] = node
	return nil
}

// Put puts a node of the program's own on a stream: the host's side of a
// launch.
func (d *Device) Put(n oracle.Node) { d.History.Add(n) }

var _ driver.Driver = (*Device)(nil)
