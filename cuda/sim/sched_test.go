package sim

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// trace runs a fixed program of three streams and returns the order in which
// its kernels ran and the addresses that it was given.
func trace(t *testing.T, seed uint64) (order []uint64) {
	t.Helper()
	d := open(t, Seeded(seed))
	must(t, d.RegisterModule("trace", Kernel{Name: "log", Run: func(x *Exec) { order = append(order, x.Args().U64(0)) }}))
	m, err := d.ModuleLoad(driver.Image{Name: "trace"})
	must(t, err)
	f, err := d.ModuleFunction(m, "log")
	must(t, err)
	p := newProgram(t, d)
	streams := []driver.Stream{p.stream(), p.stream(), p.stream()}
	var addresses []uint64
	for i := range uint64(60) {
		s := streams[i%3]
		must(t, d.Launch(&driver.Launch{Function: f, Stream: s, Args: []driver.Arg{driver.U64(i)}}))
		ptr := p.alloc(1024, s)
		p.free(ptr, streams[i*7%3])
		addresses = append(addresses, ptr)
		if i%10 == 9 {
			p.order(s, streams[(i+1)%3])
		}
	}
	must(t, d.Synchronize())
	return append(order, addresses...)
}

func TestSeededScheduleRepeats(t *testing.T) {
	distinct := map[string]bool{}
	for seed := range uint64(5) {
		first := trace(t, seed)
		if second := trace(t, seed); !slices.Equal(first, second) {
			t.Errorf("seed %d: two runs differ:\n%v\n%v", seed, first, second)
		}
		distinct[fmt.Sprint(first)] = true
	}
	if len(distinct) < 2 {
		t.Error("all seeds gave the same schedule")
	}
}

func TestNeverReadyEvent(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		a, b, e := p.stream(), p.stream(), p.event()
		d.NeverReadyAt(1)
		must(t, d.EventRecord(e, a))
		must(t, d.StreamWait(b, e))
		p.launch("read", p.alloc(64, b), 64, b)
		for range 100 {
			if done, err := d.EventQuery(e); done || err != nil {
				t.Fatalf("the event answers %v, %v", done, err)
			}
			if done, err := d.StreamQuery(b); done || err != nil {
				t.Fatalf("the waiting stream answers %v, %v", done, err)
			}
		}
		must(t, d.StreamSynchronize(a))
		time.AfterFunc(10*time.Millisecond, d.ReleaseEvents)
		must(t, d.EventSynchronize(e))
		p.wantClean()
	})
}

// A stream held from another goroutine keeps a synchronisation waiting.
func TestHoldBlocksSynchronize(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s := p.stream()
		release := p.hold(s)
		var released time.Time
		timer := time.AfterFunc(20*time.Millisecond, func() { released = time.Now(); release() })
		defer timer.Stop()
		must(t, d.StreamSynchronize(s))
		if released.IsZero() {
			t.Error("the stream was done before it was released")
		}
	})
}

func TestSlowStream(t *testing.T) {
	d := open(t, FreeRunning())
	p := newProgram(t, d)
	s, e := p.stream(), p.event()
	must(t, d.SlowStream(s, 20*time.Millisecond))
	start := time.Now()
	must(t, d.EventRecord(e, s))
	done, err := d.EventQuery(e)
	if atOnce := time.Since(start) < 20*time.Millisecond; done && atOnce || err != nil { // else the machine was slow, too
		t.Errorf("the event of a slow stream answers %v, %v at once", done, err)
	}
	must(t, d.EventSynchronize(e))
	if took := time.Since(start); took < 20*time.Millisecond {
		t.Errorf("the slow stream took %v", took)
	}
}

func TestOutOfMemoryAt(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		d.OutOfMemoryAt(2)
		p.alloc(64, 0)
		_, err := d.MemAlloc(64)
		wantCode(t, err, driver.OutOfMemory)
		p.alloc(64, 0)
	})
}

func TestDropWaits(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		a, b := p.stream(), p.stream()
		p.hold(a)
		d.DropWaits(true)
		p.order(a, b)
		must(t, d.StreamSynchronize(b))
		d.DropWaits(false)
		if d.Calls()["StreamWait"] != 1 {
			t.Errorf("calls: %v", d.Calls())
		}
	})
}

// Streams made and destroyed without end do not widen the clocks, as long as
// the host learns of their work now and then.
func TestClocksAreAsWideAsTheLivingStreams(t *testing.T) {
	d := open(t, FreeRunning())
	p := newProgram(t, d)
	for range 200 {
		s := p.stream()
		p.launch("write", p.alloc(64, s), 64, s)
		must(t, d.StreamSynchronize(s))
		must(t, d.StreamDestroy(s))
	}
	if n := len(d.slots.owners); n > 3 {
		t.Errorf("clocks have %d places for at most 2 streams at a time", n)
	}
	p.wantClean()
}

// Goroutines share streams and memory in every way that is allowed.
func TestManyGoroutines(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() { worker(p) })
		}
		group.Wait()
		p.wantClean()
		if b := d.Books(); b.LiveBlocks != 0 || b.QueuedOps != 0 || b.PendingFrees != 0 {
			t.Errorf("something is left: %+v", b)
		}
	})
}

func worker(p *program) {
	a, b := p.stream(), p.stream()
	for i := range uint64(40) {
		ptr := p.alloc(256+i*100, a)
		p.launch("write", ptr, 256, a)
		p.order(a, b)
		p.launch("double", ptr, 128, b)
		if i%8 == 0 {
			must(p, p.d.StreamSynchronize(b))
		}
		p.order(b, a)
		p.free(ptr, a)
	}
	must(p, p.d.StreamDestroy(a))
	must(p, p.d.StreamDestroy(b))
}
