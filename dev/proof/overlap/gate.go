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
	alive     int
	// closing: all was judged, and the goroutines that close the runtime are
	// not scheduled.
	closing bool
	// givenUp are streams that may not be named any more, as a set.
	givenUp uint16
	// under is what each goroutine has under way, first that of the one
	// before and after them.
	under [5]underWay
	fault error
	// reused is whose memory blocks got since the set-up.
	reused proof.Moves
}

type gateEvent struct {
	object   interleave.Object
	dead     bool
	recorded int32
}

// underWay is the operation of a goroutine.
type underWay struct {
	op      int16
	block   uint8
	aborted bool
	// since is when the call began, lessons are what was learned in it.
	since   int32
	lessons []int
	// allocated is the allocation that was made in it, 0 for none: the first of
	// all is nobody's rival.
	allocated int32
	// quick: the device is done with all that it is asked for.
	quick bool
	// finishing is the End of the use that is being finished or recorded, nil
	// for none.
	finishing *oracle.Node
}

func newGate() *gate { return &gate{Device: device.New()} }

func (g *gate) own() *underWay { return &g.under[interleave.Current()+1] }

// begin starts a call of the runtime's for an operation, and end ends it.
func (g *gate) begin(u underWay) {
	u.since = g.History.Moment()
	*g.own() = u
}

func (g *gate) end() {
	for _, l := range g.own().lessons {
		g.History.Sure(l)
	}
	if at := g.own().allocated; at > 0 {
		g.History.Return(at)
	}
	g.own().allocated = 0
	g.own().lessons, g.own().finishing = nil, nil
}

// speak makes the device speak of the operation under way.
func (g *gate) speak() {
	u := g.own()
	g.Op, g.Aborted, g.Block, g.Since = u.op, u.aborted, u.block, u.since
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

// put puts nodes of the program's own on a stream, as one step.
func (g *gate) put(s uint8, nodes ...oracle.Node) {
	g.onStream(s)
	for _, n := range nodes {
		g.Put(n)
	}
}

func (g *gate) EventCreate() (driver.Event, error) {
	g.events = append(g.events, new(gateEvent))
	g.alive++
	return g.Device.EventCreate()
}

func (g *gate) EventDestroy(e driver.Event) error {
	known := g.event(e)
	interleave.Do(interleave.Access{Object: &known.object, Write: true})
	g.event(e).dead = true
	g.alive--
	return nil
}

// EventRecord puts the end of the use that is being finished or recorded once more: the
// event stands for what others put on the stream before it, too.
func (g *gate) EventRecord(e driver.Event, s driver.Stream) error {
	g.onStream(uint8(s), interleave.Access{Object: &g.event(e).object, Write: true})
	if end := g.own().finishing; end != nil && driver.Stream(end.Stream) == s {
		g.Put(*end)
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
	if g.own().quick {
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

var _ driver.Driver = (*gate)(nil)
