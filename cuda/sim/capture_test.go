package sim

import (
	"encoding/binary"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// graph is the work of a function, captured on s.
func (p *program) graph(s driver.Stream, work func()) driver.Graph {
	p.Helper()
	must(p, p.d.StreamBeginCapture(s))
	work()
	g, err := p.d.StreamEndCapture(s)
	must(p, err)
	return g
}

// captureCases are programs with a fence left out, and their twins with it.
var captureCases = []struct {
	name string
	want Kind
	run  func(p *program, fence func(from, to driver.Stream))
}{
	{"a launch that does not wait for a writer", Race, func(p *program, fence func(from, to driver.Stream)) {
		a, b := p.stream(), p.stream()
		ptr := p.alloc(4096, a)
		g := p.graph(a, func() { p.launch("write", ptr, 4096, a) })
		p.order(a, b)
		p.launch("read", ptr, 4096, a)
		fence(a, b)
		must(p, p.d.GraphLaunch(g, b))
		p.order(b, a)
		p.free(ptr, a)
	}},
	{"a free that does not wait for a launch", FreeRace, func(p *program, fence func(from, to driver.Stream)) {
		a, b := p.stream(), p.stream()
		ptr := p.alloc(4096, a)
		g := p.graph(a, func() { must(p, p.d.MemsetAsync(ptr, 1, 4096, a)) })
		p.order(a, b)
		must(p, p.d.GraphLaunch(g, b))
		fence(b, a)
		p.free(ptr, a)
	}},
	{"a launch that does not wait for the successor of its block", UseBeforeAlloc, func(p *program, fence func(from, to driver.Stream)) {
		a, b := p.stream(), p.stream()
		ptr := p.alloc(4096, a)
		g := p.graph(a, func() { must(p, p.d.MemsetAsync(ptr, 1, 4096, a)) })
		p.free(ptr, a)
		if next := p.alloc(4096, a); next != ptr {
			p.Fatal("the address was not used again")
		}
		fence(a, b)
		must(p, p.d.GraphLaunch(g, b))
		p.order(b, a)
		p.free(ptr, a)
	}},
}

func TestAGraphIsJudgedAsTheWorkOfItsLaunch(t *testing.T) {
	for _, c := range captureCases {
		t.Run(c.name, func(t *testing.T) {
			underEach(t, func(t *testing.T, d *Device) {
				p := newProgram(t, d)
				c.run(p, func(driver.Stream, driver.Stream) {})
				p.wantFinding(c.want)
			})
			underEach(t, func(t *testing.T, d *Device) {
				p := newProgram(t, d)
				c.run(p, p.order)
				p.wantClean()
			})
		})
	}
}

func TestAGraphThatReachesFreedMemoryIsFound(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s := p.stream()
		ptr := p.alloc(4096, s)
		g := p.graph(s, func() { p.launch("write", ptr, 4096, s) })
		p.free(ptr, s)
		must(t, d.GraphLaunch(g, s))
		p.wantFinding(UseAfterFree)
	})
}

func TestAGraphRunsItsWorkInOrderEachTime(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s := p.stream()
		ptr := p.alloc(4, s)
		g := p.graph(s, func() {
			p.launch("double", ptr, 4, s)
			p.launch("double", ptr, 4, s)
		})
		must(t, d.CopyToDeviceAsync(ptr, []byte{1, 0, 0, 0}, s))
		for range 5 {
			must(t, d.GraphLaunch(g, s))
		}
		got := make([]byte, 4)
		must(t, d.CopyToHostAsync(got, ptr, s))
		must(t, d.StreamSynchronize(s))
		if n := binary.LittleEndian.Uint32(got); n != 1<<10 {
			t.Errorf("doubled to %d, want 1024", n)
		}
		p.free(ptr, s)
		p.wantClean()
	})
}

// CUDA orders the launches of one graph, on whatever streams.
func TestLaunchesOfOneGraphRunOneAfterTheOther(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		a, b := p.stream(), p.stream()
		ptr := p.alloc(4096, a)
		p.order(a, b)
		g := p.graph(a, func() { p.launch("write", ptr, 4096, a) })
		release := p.hold(a)
		must(t, d.GraphLaunch(g, a))
		must(t, d.GraphLaunch(g, b))
		for range 50 {
			if done, err := d.StreamQuery(b); done || err != nil {
				t.Fatalf("the second launch is done before the first: %v", err)
			}
		}
		release()
		must(t, d.StreamSynchronize(b))
		p.order(b, a)
		p.free(ptr, a)
		p.wantClean()
	})
}

func TestWhatACaptureProhibits(t *testing.T) {
	d, peer := open(t, FreeRunning()), open(t, FreeRunning())
	p := newProgram(t, d)
	s, fork, other := p.stream(), p.stream(), p.stream()
	inside, old, never := p.event(), p.event(), p.event()
	abroad, err := peer.EventCreate()
	must(t, err)
	ptr := p.alloc(4096, other)
	g := p.graph(s, func() { must(t, d.EventRecord(old, s)) })
	for name, c := range map[string]struct {
		code int
		call func() error
	}{
		"an allocation":                           {driver.CaptureUnsupported, func() error { _, err := d.MemAllocAsync(64, 0, s); return err }},
		"a free":                                  {driver.CaptureUnsupported, func() error { return d.MemFreeAsync(ptr, s) }},
		"a synchronisation":                       {driver.CaptureUnsupported, func() error { return d.Synchronize() }},
		"a graph in a graph":                      {driver.CaptureUnsupported, func() error { return d.GraphLaunch(g, s) }},
		"the end of the stream":                   {driver.CaptureUnsupported, func() error { return d.StreamDestroy(fork) }},
		"a copy from a peer":                      {driver.CaptureUnsupported, func() error { return d.CopyFromPeerAsync(ptr, peer, ptr, 8, s) }},
		"a wait for a peer":                       {driver.CaptureUnsupported, func() error { return d.StreamWaitPeer(s, peer, abroad) }},
		"a query of a captured event":             {driver.CapturedEvent, func() error { _, err := d.EventQuery(inside); return err }},
		"a wait on the host for a captured event": {driver.CapturedEvent, func() error { return d.EventSynchronize(inside) }},
		"a hold":                                  {driver.CaptureUnsupported, func() error { _, err := d.Hold(s); return err }},
		"an end where it did not begin":           {driver.CaptureUnmatched, func() error { _, err := d.StreamEndCapture(fork); return err }},
		"a wait for an older capture":             {driver.CaptureIsolation, func() error { return d.StreamWait(s, old) }},
	} {
		must(t, d.StreamBeginCapture(s))
		wantCode(t, d.StreamBeginCapture(s), driver.IllegalState)
		must(t, d.EventRecord(inside, s))
		must(t, d.StreamWait(fork, inside))
		must(t, d.StreamWait(s, never)) // an event never recorded is complete
		if err := c.call(); err == nil {
			t.Errorf("%s is let through", name)
		} else {
			wantCode(t, err, c.code)
		}
		for _, call := range []error{
			d.MemsetAsync(ptr, 0, 64, s), d.EventRecord(inside, fork), d.StreamWait(other, inside),
		} {
			wantCode(t, call, driver.CaptureInvalidated)
		}
		_, err = d.StreamEndCapture(s)
		wantCode(t, err, driver.CaptureInvalidated)
		wantCode(t, d.StreamWait(other, old), driver.CapturedEvent)
		_, err = d.EventQuery(old)
		wantCode(t, err, driver.CapturedEvent)
	}
	must(t, d.EventRecord(old, s)) // an event recorded anew is like any other
	must(t, d.EventSynchronize(old))
	must(t, d.GraphDestroy(g))
	wantCode(t, d.GraphLaunch(g, s), driver.InvalidHandle)
	p.free(ptr, other)
	p.wantClean()
	if b := d.Books(); b.Graphs != 0 || b.Streams != 3 {
		t.Errorf("books: %+v", b)
	}
}
