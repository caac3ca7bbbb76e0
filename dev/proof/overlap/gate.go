package overlap

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/device"
	"github.com/fencepost-gpu/fencepost/dev/proof/interleave"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
)

// gate is the device that writes down what arrives, as one that several
// goroutines call: each call is a step, and is made for the operation that the
// goroutine has under way. It says what has in common with what: calls on one
// stream or event, all that allocate or free, and what the host learns with
// everything.
type gate struct {
	*device.Device

	streams   [device.MaxStreams]interleave.Object
	allocator interleave.Object
	world     interleave.Object
	events    []*gateEvent
	// closing: all was judged, and the goroutines that close the runtime are
	// not scheduled.
	closing bool
	// givenUp are streams that may not be named any more, as a set.
	givenUp uint16
	// under is what each goroutine has under way, first that of the one
	// before and after them.
	under [5]underWay
	fault error
}

type gateEvent struct {
	object   interleave.Object
	dead     bool
	recorded int32
}

// underWay is the call of a goroutine.
type underWay struct {
	device.Call
	// since is when the call began, lessons are what was learned in it.
	since   int32
	lessons []int
	// allocated is the allocation that was made in it, 0 for none: the first of
	// all has no rival.
	allocated int32
	// begun is what a use is put on its stream with, in one step with its work.
	begun []oracle.Node
	// finishing is the End of the use that is being finished or recorded, nil
	// for none.
	finishing *oracle.Node
}

func newGate() *gate {
	g := &gate{Device: device.New()}
	g.OnPages = func() {
		interleave.Do(interleave.Access{Object: &g.allocator, Write: true}, interleave.Access{Object: &g.world})
		g.speak()
	}
	return g
}

func (g *gate) own() *underWay { return &g.under[interleave.Current()+1] }

// Begin starts a call of the runtime's for an operation, and End ends it.
func (g *gate) Begin(c device.Call) {
	u := g.own()
	*u = underWay{Call: c, since: g.History.Moment(), begun: u.begun}
}

func (g *gate) End() {
	u := g.own()
	for _, l := range u.lessons {
		g.History.Sure(l)
	}
	if u.allocated > 0 {
		g.History.Return(u.allocated)
	}
	u.allocated, u.lessons, u.finishing = 0, nil, nil
}

// speak makes the device speak of the operation under way.
func (g *gate) speak() {
	u := g.own()
	g.Call, g.Since = u.Call, u.since
}

func (g *gate) blame(format string, args ...any) {
	if g.fault == nil {
		g.fault = fmt.Errorf(format, args...)
	}
}

// onStream is a step that puts something on a stream, and speak.
func (g *gate) onStream(s uint8, more ...interleave.Access) {
	interleave.Do(append(more, interleave.Access{Object: &g.streams[s], Write: true}, interleave.Access{Object: &g.world})...)
	if g.givenUp>>s&1 != 0 {
		g.blame("stream %d was named after it had been given up", s)
	}
	g.speak()
}

func (g *gate) event(e driver.Event) *gateEvent {
	known := g.events[e-1]
	if known.dead {
		g.blame("event %d was used or destroyed after it had been destroyed", e)
	}
	return known
}

// Put puts a node of the program's own on a stream. The beginning of a use, its work, and the end of one
// that is recorded afterwards are one step.
func (g *gate) Put(n oracle.Node) {
	u := g.own()
	u.begun = append(u.begun, n)
	if n.Kind == oracle.Begin && !n.Aborted || n.Kind == oracle.Work && n.Unfenced {
		return
	}
	g.onStream(n.Stream)
	for _, n := range u.begun {
		g.Device.Put(n)
	}
	u.begun = u.begun[:0]
	if n.Kind == oracle.End {
		u.finishing = &n
	}
}

// Execute does nothing: a call says that it finds the device done with what it asks for.
func (g *gate) Execute(uint8) {}

func (g *gate) EventCreate() (driver.Event, error) {
	g.events = append(g.events, new(gateEvent))
	return g.Device.EventCreate()
}

func (g *gate) EventDestroy(e driver.Event) error {
	known := g.event(e)
	interleave.Do(interleave.Access{Object: &known.object, Write: true})
	g.event(e).dead = true
	return g.Device.EventDestroy(e)
}

// EventRecord puts the end of the use that is being finished or recorded once more: the
// event stands for what others put on the stream before it, too.
func (g *gate) EventRecord(e driver.Event, s driver.Stream) error {
	g.onStream(uint8(s), interleave.Access{Object: &g.event(e).object, Write: true})
	if end := g.own().finishing; end != nil && driver.Stream(end.Stream) == s {
		g.Device.Put(*end)
	}
	g.event(e).recorded = g.History.Moment()
	return g.Device.EventRecord(e, s)
}

func (g *gate) StreamWait(s driver.Stream, e driver.Event) error {
	g.onStream(uint8(s), interleave.Access{Object: &g.event(e).object})
	g.Known = g.event(e).recorded
	return g.Device.StreamWait(s, e)
}

func (g *gate) EventQuery(e driver.Event) (bool, error) {
	known := g.event(e)
	interleave.Do(interleave.Access{Object: &known.object}, interleave.Access{Object: &g.world, Write: true})
	if g.own().Done {
		return true, g.learn(func() error { return g.Device.EventSynchronize(e) })
	}
	var done bool
	err := g.learn(func() (err error) { done, err = g.Device.EventQuery(e); return err })
	return done, err
}

func (g *gate) EventSynchronize(e driver.Event) error {
	known := g.event(e)
	interleave.Do(interleave.Access{Object: &known.object}, interleave.Access{Object: &g.world, Write: true})
	return g.learn(func() error { return g.Device.EventSynchronize(e) })
}

func (g *gate) StreamSynchronize(s driver.Stream) error {
	if g.closing {
		return nil
	}
	g.onStream(uint8(s), interleave.Access{Object: &g.world, Write: true})
	return g.learn(func() error { return g.Device.StreamSynchronize(s) })
}

// learn notes which lessons the call under way learns.
func (g *gate) learn(call func() error) error {
	before := g.History.Lessons()
	err := call()
	for l := before; l < g.History.Lessons(); l++ {
		g.own().lessons = append(g.own().lessons, l)
	}
	return err
}

func (g *gate) MemAllocAsync(bytes uint64, p driver.Pool, s driver.Stream) (uint64, error) {
	g.onStream(uint8(s), interleave.Access{Object: &g.allocator, Write: true})
	g.own().allocated = int32(g.History.Len())
	return g.Device.MemAllocAsync(bytes, p, s)
}

func (g *gate) MemFreeAsync(ptr uint64, s driver.Stream) error {
	g.onStream(uint8(s), interleave.Access{Object: &g.allocator, Write: true})
	return g.Device.MemFreeAsync(ptr, s)
}

// Took puts the allocation of a block from the runtime's own pool on its stream: a step,
// like what a driver would be asked for.
func (g *gate) Took(stream, ptr, bytes uint64) {
	g.onStream(uint8(stream), interleave.Access{Object: &g.allocator, Write: true})
	g.own().allocated = int32(g.History.Len())
	g.Locate(ptr, bytes)
	if err := g.Allocated(uint8(stream)); err != nil {
		g.blame("block %d: %w", g.Block, err)
	}
}

// Gave puts the free of a block on the stream.
func (g *gate) Gave(stream, ptr uint64) {
	g.onStream(uint8(stream), interleave.Access{Object: &g.allocator, Write: true})
	block, ok := g.At(ptr)
	if !ok {
		g.blame("memory at %#x was freed, and no block has it", ptr)
		return
	}
	if err := g.FreedOn(uint8(stream), block, false); err != nil {
		g.blame("block %d: %w", block, err)
	}
}

var _ proof.Gate = (*gate)(nil)
