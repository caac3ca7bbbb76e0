package sim

import (
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Each case is a program whose fence is left out, which the
// oracle must see, and its twin with the fence, in which it must see nothing.
var oracleCases = []struct {
	name string
	want Kind
	run  func(p *program, fence func(from, to driver.Stream))
}{
	{"write after write", Race, func(p *program, fence func(from, to driver.Stream)) {
		conflict(p, fence, "write", "write")
	}},
	{"read after write", Race, func(p *program, fence func(from, to driver.Stream)) {
		conflict(p, fence, "write", "read")
	}},
	{"write after read", Race, func(p *program, fence func(from, to driver.Stream)) {
		conflict(p, fence, "read", "write")
	}},
	{"memset after copy", Race, func(p *program, fence func(from, to driver.Stream)) {
		a, b := p.stream(), p.stream()
		ptr := p.alloc(4096, a)
		p.order(a, b)
		must(p, p.d.CopyToDeviceAsync(ptr, make([]byte, 4096), a))
		fence(a, b)
		must(p, p.d.MemsetAsync(ptr+4000, 1, 96, b))
		p.order(b, a)
		p.free(ptr, a)
	}},
	{"kernel's write of host memory after a copy to it", Race, func(p *program, fence func(from, to driver.Stream)) {
		hostConflict(p, fence, (*program).toHost, (*program).kernelWrites)
	}},
	{"kernel's write of host memory after a copy from it", Race, func(p *program, fence func(from, to driver.Stream)) {
		hostConflict(p, fence, (*program).fromHost, (*program).kernelWrites)
	}},
	{"copy from host memory after a kernel's write", Race, func(p *program, fence func(from, to driver.Stream)) {
		hostConflict(p, fence, (*program).kernelWrites, (*program).fromHost)
	}},
	{"copy to host memory after another", Race, func(p *program, fence func(from, to driver.Stream)) {
		hostConflict(p, fence, (*program).toHost, (*program).toHost)
	}},
	{"use on a stream that knows nothing of the allocation", UseBeforeAlloc, func(p *program, fence func(from, to driver.Stream)) {
		a, b := p.stream(), p.stream()
		ptr := p.alloc(4096, a)
		fence(a, b)
		p.launch("write", ptr, 4096, b)
		p.order(b, a)
		p.free(ptr, a)
	}},
	{"free without waiting for another stream", FreeRace, func(p *program, fence func(from, to driver.Stream)) {
		a, b := p.stream(), p.stream()
		ptr := p.alloc(4096, a)
		p.order(a, b)
		p.launch("read", ptr, 4096, b)
		fence(b, a)
		p.free(ptr, a)
	}},
}

// conflict does two accesses on two streams.
func conflict(p *program, fence func(from, to driver.Stream), first, second string) {
	p.Helper()
	a, b := p.stream(), p.stream()
	ptr := p.alloc(4096, a)
	p.order(a, b)
	p.launch(first, ptr, 4096, a)
	fence(a, b)
	p.launch(second, ptr, 4096, b)
	p.order(b, a)
	p.free(ptr, a)
}

// hostConflict does two accesses of one range of page-locked memory on two streams.
func hostConflict(p *program, fence func(from, to driver.Stream), first, second func(*program, driver.HostMemory, driver.Stream)) {
	p.Helper()
	a, b := p.stream(), p.stream()
	m, err := p.d.HostAlloc(4096)
	must(p, err)
	first(p, m, a)
	fence(a, b)
	second(p, m, b)
	must(p, p.d.StreamSynchronize(a))
	must(p, p.d.StreamSynchronize(b))
	must(p, p.d.HostFree(m))
}

func (p *program) kernelWrites(m driver.HostMemory, s driver.Stream) {
	p.launch("write", m.DevicePtr+100, 16, s)
}

func (p *program) toHost(m driver.HostMemory, s driver.Stream) {
	p.copyOfHost(s, func(ptr uint64) error { return p.d.CopyToHostAsync(m.Bytes[64:1088], ptr, s) })
}

func (p *program) fromHost(m driver.HostMemory, s driver.Stream) {
	p.copyOfHost(s, func(ptr uint64) error { return p.d.CopyToDeviceAsync(ptr, m.Bytes[64:1088], s) })
}

// copyOfHost does a copy with a block of the stream's own.
func (p *program) copyOfHost(s driver.Stream, do func(ptr uint64) error) {
	p.Helper()
	ptr := p.alloc(1024, s)
	must(p, p.d.MemsetAsync(ptr, 1, 1024, s))
	must(p, do(ptr))
	p.free(ptr, s)
}

// Parts of page-locked memory that do not overlap, and reads, need no order. Go's memory is not the
// device's: its owner orders what copies do to it.
func TestCopiesOfHostMemoryThatDoNotConflict(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		a, b := p.stream(), p.stream()
		m, err := d.HostAlloc(4096)
		must(t, err)
		p.fromHost(m, a)
		p.fromHost(m, b)
		p.launch("write", m.DevicePtr+2000, 100, a)
		p.launch("read", m.DevicePtr+1000, 50, b)
		own := make([]byte, 1024)
		for _, s := range []driver.Stream{a, b} {
			p.copyOfHost(s, func(ptr uint64) error { return d.CopyToDeviceAsync(ptr, own, s) })
		}
		must(t, d.Synchronize())
		must(t, d.HostFree(m))
		p.wantClean()
	})
}

func TestOracleSeesMissingFences(t *testing.T) {
	for _, c := range oracleCases {
		t.Run(c.name, func(t *testing.T) {
			underEach(t, func(t *testing.T, d *Device) {
				p := newProgram(t, d)
				c.run(p, func(_, _ driver.Stream) {})
				p.wantFinding(c.want)
			})
			t.Run("fenced", func(t *testing.T) {
				underEach(t, func(t *testing.T, d *Device) {
					p := newProgram(t, d)
					c.run(p, p.order)
					p.wantClean()
				})
			})
			t.Run("host", func(t *testing.T) {
				underEach(t, func(t *testing.T, d *Device) {
					p := newProgram(t, d)
					c.run(p, func(from, _ driver.Stream) { must(t, d.StreamSynchronize(from)) })
					p.wantClean()
				})
			})
		})
	}
}

// A dropped wait is seen whatever the schedule happens to be.
func TestOracleSeesDroppedWaits(t *testing.T) {
	for _, c := range oracleCases {
		for seed := range uint64(12) {
			d := open(t, Seeded(seed))
			p := newProgram(t, d)
			c.run(p, func(from, to driver.Stream) {
				d.DropWaitAt(1)
				p.order(from, to)
			})
			if !p.kinds()[c.want] {
				t.Errorf("%s, seed %d: found %v, want %s", c.name, seed, d.Findings(), c.want)
			}
		}
	}
}

func TestOracleSeesUseAfterFree(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s := p.stream()
		ptr := p.alloc(4096, s)
		keep := p.alloc(4096, s) // keeps the granule mapped
		p.free(ptr, s)
		p.launch("read", ptr, 4096, s)
		p.wantFinding(UseAfterFree)
		f := d.Findings()[0]
		if f.BlockPtr != ptr || f.BlockBytes != 4096 || f.First.Op != "read" || !strings.Contains(f.Text, "use-after-free") {
			t.Errorf("the finding does not name victim and culprit: %+v", f)
		}
		p.free(keep, s)
	})
}

// A stale pointer into reused memory is told from the new block by clocks.
func TestOracleSeesStaleUseOfReusedAddress(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		a, b := p.stream(), p.stream()
		old := p.alloc(4096, a)
		p.order(a, b)
		p.free(old, a)
		fresh := p.alloc(4096, a)
		if fresh != old {
			t.Fatalf("%#x was not reused at once: got %#x", old, fresh)
		}
		p.launch("read", old, 4096, b)
		if kinds := p.kinds(); !kinds[UseBeforeAlloc] {
			t.Fatalf("found %v, want %s", d.Findings(), UseBeforeAlloc)
		}
	})
}

func TestOracleSeesUndeclared(t *testing.T) {
	for _, kernel := range []string{"lie", "write as read"} {
		underEach(t, func(t *testing.T, d *Device) {
			p := newProgram(t, d)
			s := p.stream()
			p.launch(kernel, p.alloc(4096, s), 4096, s)
			p.wantFinding(Undeclared)
		})
	}
}

func TestOracleSeesOutOfBounds(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s := p.stream()
		ptr := p.alloc(100, s)
		p.launch("read", ptr, 100, s)
		p.wantClean()
		p.launch("read", ptr, 101, s)
		p.wantFinding(OutOfBounds)
	})
}

func TestOracleKeepsDisjointRangesApart(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		a, b := p.stream(), p.stream()
		ptr := p.alloc(4096, a)
		p.order(a, b)
		p.launch("write", ptr, 2048, a)
		p.launch("write", ptr+2048, 2048, b)
		p.wantClean()
		p.launch("write", ptr+2047, 2, b) // the host is after everything
		p.wantClean()
	})
}

// Many readers do not make the shadow of a block grow.
func TestShadowStaysBounded(t *testing.T) {
	d := open(t, FreeRunning())
	p := newProgram(t, d)
	a, b := p.stream(), p.stream()
	ptr := p.alloc(4096, a)
	p.order(a, b)
	for range 1000 {
		p.launch("read", ptr, 4096, a)
		p.launch("read", ptr, 4096, b)
	}
	p.wantClean()
	if n := len(d.memory.blockAt(ptr).own[0].reads); n != 2 {
		t.Errorf("the shadow keeps %d reads, want one a stream", n)
	}
}

func TestFindingsAreCountedAndBounded(t *testing.T) {
	calls := 0
	d, err := Open(Config{Bytes: 64 << 20, Schedule: Seeded(3), OnFinding: func(Finding) { calls++ }})
	must(t, err)
	defer func() { must(t, d.Close()) }()
	p := newProgram(t, d)
	s := p.stream()
	ptr := p.alloc(100, s)
	for range 10 {
		p.launch("read", ptr, 101, s)
	}
	must(t, d.Synchronize())
	if list := d.Findings(); len(list) != 1 || list[0].Count != 10 || d.FindingCount() != 10 || calls != 1 {
		t.Errorf("10 equal findings: %d kept, %d counted, %d callbacks", len(list), d.FindingCount(), calls)
	}
	d.ResetFindings()
	p.wantClean()
}

// What an indirect launch touches is judged by what its addresses meant when
// it was queued, even if the block is freed and its address reused before it
// runs.
func TestIndirectLaunchMeansTheOldBlock(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		must(t, d.RegisterModule("indirect", Kernel{Name: "read", Indirect: true,
			Run: func(x *Exec) { x.Read(x.Args().Ptr(0), 4096) }}))
		m, err := d.ModuleLoad(driver.Image{Name: "indirect"})
		must(t, err)
		f, err := d.ModuleFunction(m, "read")
		must(t, err)
		s := p.stream()
		ptr := p.alloc(4096, s)
		release := p.hold(s)
		must(t, d.Launch(&driver.Launch{Function: f, Stream: s, Args: []driver.Arg{driver.Ptr(ptr)}}))
		for range 600 {
			p.free(ptr, s)
			if again := p.alloc(4096, s); again != ptr {
				t.Fatalf("%#x was not reused at once: got %#x", ptr, again)
			}
		}
		release()
		p.wantClean()
	})
}
