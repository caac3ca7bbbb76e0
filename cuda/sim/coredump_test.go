package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/gpucore"
)

// armed is a program on a device that writes core dumps, with the kernels reach, reach_write and reach_atomic,
// which touch 64 bytes at their second argument.
func armed(t *testing.T, s Schedule) (p *program, launch func(kernel string, s driver.Stream, args ...driver.Arg), dump func() (*gpucore.Dump, bool)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dump")
	d, err := Open(Config{Bytes: 256 << 20, Schedule: s, CoreDump: file})
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	must(t, d.RegisterModule("reach",
		Kernel{Name: "reach", Run: func(x *Exec) { x.Read(x.Args().Ptr(1), 64) }},
		Kernel{Name: "reach_write", Run: func(x *Exec) { x.Write(x.Args().Ptr(1), 64) }},
		Kernel{Name: "reach_atomic", Run: func(x *Exec) { x.ReadWrite(x.Args().Ptr(1), 64) }}))
	m, err := d.ModuleLoad(driver.Image{Name: "reach"})
	must(t, err)
	launch = func(kernel string, s driver.Stream, args ...driver.Arg) {
		t.Helper()
		f, err := d.ModuleFunction(m, kernel)
		must(t, err)
		must(t, d.Launch(&driver.Launch{Function: f, Stream: s, Grid: driver.Dim{X: 3, Y: 2}, Block: driver.Dim{X: 128}, Args: args}))
	}
	dump = func() (*gpucore.Dump, bool) {
		t.Helper()
		b, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			return nil, false
		}
		must(t, err)
		read, err := gpucore.Read(bytes.NewReader(b))
		must(t, err)
		return read, true
	}
	return newProgram(t, d), launch, dump
}

func underEachArmed(t *testing.T, test func(t *testing.T, s Schedule)) {
	for _, s := range most() {
		t.Run(s.String(), func(t *testing.T) { test(t, s) })
	}
}

// nowhere is an address that no device has.
const nowhere = 0xdead_0000

func TestAFaultOfAKernelIsDumpedBeforeTheContextIsLost(t *testing.T) {
	underEachArmed(t, func(t *testing.T, s Schedule) {
		for kernel, want := range map[string]string{"reach": "read 16", "reach_write": "write 16", "reach_atomic": "atomic 8"} {
			p, launch, dump := armed(t, s)
			st := p.stream()
			launch(kernel, st, driver.U32(7), driver.Ptr(nowhere), driver.Arg{Bits: 0x1234, Size: 2}, driver.F64(0.5))
			wantCode(t, p.d.StreamSynchronize(st), driver.IllegalAddress)
			d, _ := dump()
			params := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 7), nowhere)
			params = append(params, 0x34, 0x12, 0, 0, 0, 0, 0, 0)
			params = append(params, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f)
			if len(d.Grids) != 1 || len(d.Faults) != 1 {
				t.Fatalf("the dump is %+v", d)
			}
			g := d.Grids[0]
			if g.Kernel != kernel || !bytes.Equal(g.Params, params) || g.Blocks != [3]uint32{3, 2, 1} || g.Threads != [3]uint32{128, 1, 1} {
				t.Errorf("the grid is %+v", g)
			}
			f := d.Faults[0]
			if got := fmt.Sprintf("%v %d", f.Access.Kind, f.Access.Bytes); got != want || !f.Access.Known || f.Access.Address != nowhere || f.Kernel != kernel || f.Exception.String() != "warp illegal address" {
				t.Errorf("%s, want %s: %+v", got, want, f)
			}
			if kinds := p.d.Findings(); len(kinds) != 1 || kinds[0].Kind != IllegalAddress {
				t.Errorf("the oracle's findings are %v", kinds)
			}
		}
	})
}

// The address is that of the first byte that is not there, and the width is one that an instruction has.
func TestTheDumpNamesTheFirstByteThatIsNotThere(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		p, launch, dump := armed(t, FreeRunning())
		ptr, err := p.d.MemAlloc(Granule)
		must(t, err)
		end := ptr&^(Granule-1) + Granule
		for p.d.isMapped(end, 1) {
			end += Granule
		}
		from := end - r.Uint64N(64) // of 64 bytes
		launch("reach", 0, driver.U32(0), driver.Ptr(from))
		wantCode(t, p.d.Synchronize(), driver.IllegalAddress)
		d, _ := dump()
		a := d.Faults[0].Access
		if left := from + 64 - end; a.Address != end || uint64(a.Bytes) > left || uint64(a.Bytes)*2 <= min(left, 16) {
			t.Errorf("64 bytes from %#x, the end is %#x: %+v", from, end, a)
		}
	}
}

// What runs beside the kernel that faulted is in the dump, behind it.
func TestADumpHasWhatRunsBeside(t *testing.T) {
	p, launch, dump := armed(t, FreeRunning())
	began, end := make(chan struct{}), make(chan struct{})
	must(t, p.d.RegisterModule("beside", Kernel{Name: "beside", Run: func(*Exec) { close(began); <-end }}))
	m, err := p.d.ModuleLoad(driver.Image{Name: "beside"})
	must(t, err)
	f, err := p.d.ModuleFunction(m, "beside")
	must(t, err)
	must(t, p.d.Launch(&driver.Launch{Function: f, Stream: p.stream()}))
	<-began
	st := p.stream()
	launch("reach", st, driver.U32(0), driver.Ptr(nowhere))
	wantCode(t, p.d.StreamSynchronize(st), driver.IllegalAddress)
	close(end)
	d, _ := dump()
	if len(d.Grids) != 2 || d.Grids[0].Kernel != "reach" || d.Grids[1].Kernel != "beside" || d.Grids[0].ID == d.Grids[1].ID {
		t.Errorf("the grids are %+v", d.Grids)
	}
}

// Only kernels are dumped.
func TestAFaultOfACopyIsNotDumped(t *testing.T) {
	underEachArmed(t, func(t *testing.T, s Schedule) {
		p, _, dump := armed(t, s)
		ptr, size := p.mapped(1)
		st := p.stream()
		release := p.hold(st)
		must(t, p.d.MemsetAsync(ptr, 1, 64, st))
		must(t, p.d.MemUnmap(ptr, size))
		release()
		wantCode(t, p.d.StreamSynchronize(st), driver.IllegalAddress)
		if _, there := dump(); there {
			t.Error("it was dumped")
		}
	})
}

// A dump that cannot be written is said in the error.
func TestADumpThatCannotBeWrittenIsSaid(t *testing.T) {
	p, launch, _ := armed(t, FreeRunning())
	must(t, os.Mkdir(p.d.config.CoreDump, 0o700))
	launch("reach", 0, driver.U32(0), driver.Ptr(nowhere))
	err := p.d.Synchronize()
	wantCode(t, err, driver.IllegalAddress)
	if !strings.Contains(err.Error(), "could not be written") {
		t.Error(err)
	}
}

// While a device lies, streams and plain events are done and events with timing are not; the dump and the loss come afterwards.
func TestAFalseSuccessIsTold(t *testing.T) {
	underEachArmed(t, func(t *testing.T, s Schedule) {
		p, launch, dump := armed(t, s)
		st, plain, late := p.stream(), p.event(), p.event()
		timed, err := p.d.TimingEventCreate()
		must(t, err)
		end := p.d.FalseSuccess()
		launch("reach_write", st, driver.U32(0), driver.Ptr(nowhere))
		must(t, p.d.EventRecord(plain, st))
		must(t, p.d.StreamSynchronize(st))
		must(t, p.d.EventSynchronize(plain))
		must(t, p.d.EventRecord(late, st))
		must(t, p.d.Synchronize())
		for _, e := range []driver.Event{plain, late} {
			if done, err := p.d.EventQuery(e); !done || err != nil {
				t.Errorf("an event behind the fault: %v, %v", done, err)
			}
		}
		must(t, p.d.EventRecord(timed, st))
		must(t, p.d.EventRecord(late, st))
		for range 20 {
			for _, e := range []driver.Event{timed, late} {
				if done, err := p.d.EventQuery(e); done || err != nil {
					t.Fatalf("an event with timing, or behind one: %v, %v", done, err)
				}
			}
			if done, err := p.d.StreamQuery(st); done || err != nil {
				t.Fatalf("a stream with such an event: %v, %v", done, err)
			}
		}
		if _, there := dump(); there {
			t.Error("it was dumped already")
		}
		time.AfterFunc(time.Millisecond, end)
		wantCode(t, p.d.EventSynchronize(timed), driver.IllegalAddress)
		if _, there := dump(); !there {
			t.Error("it was not dumped")
		}
	})
}

// A device whose faults are watched says of nothing behind a fault that it is done, though it would lie; from the first byte of the dump
// on it fails.
func TestWatchedFaultsAreNeverDone(t *testing.T) {
	underEachArmed(t, func(t *testing.T, s Schedule) {
		p, launch, _ := armed(t, s)
		must(t, p.d.WatchFaults(func() bool { _, err := os.Stat(p.d.config.CoreDump); return err == nil }, nil))
		st, e := p.stream(), p.event()
		end := p.d.FalseSuccess()
		launch("reach_write", st, driver.U32(0), driver.Ptr(nowhere))
		must(t, p.d.EventRecord(e, st))
		for range 20 {
			if done, err := p.d.EventQuery(e); done || err != nil {
				t.Fatalf("the event answers %v, %v", done, err)
			}
			if done, err := p.d.StreamQuery(st); done || err != nil {
				t.Fatalf("the stream answers %v, %v", done, err)
			}
		}
		time.AfterFunc(time.Millisecond, end)
		if err := p.d.StreamSynchronize(st); !errors.Is(err, core.ErrSticky) {
			t.Errorf("the fault is %v", err)
		}
	})
}

// A wait for a stream is one for an event with timing, also where none is recorded.
func TestAWaitForAStreamOfWatchedFaultsIsNotDeceived(t *testing.T) {
	underEachArmed(t, func(t *testing.T, s Schedule) {
		p, launch, _ := armed(t, s)
		must(t, p.d.WatchFaults(func() bool { return false }, nil))
		st := p.stream()
		end := p.d.FalseSuccess()
		launch("reach_write", st, driver.U32(0), driver.Ptr(nowhere))
		time.AfterFunc(time.Millisecond, end)
		wantCode(t, p.d.StreamSynchronize(st), driver.IllegalAddress)
	})
}

func TestNothingIsDoneWhileADumpIsUnderWay(t *testing.T) {
	d := open(t, FreeRunning())
	var begun bool
	must(t, d.WatchFaults(func() bool { return begun }, nil))
	p := newProgram(t, d)
	st, e := p.stream(), p.event()
	calls := map[string]func() (bool, error){
		"EventQuery":        func() (bool, error) { return d.EventQuery(e) },
		"StreamQuery":       func() (bool, error) { return d.StreamQuery(st) },
		"EventSynchronize":  func() (bool, error) { return true, d.EventSynchronize(e) },
		"StreamSynchronize": func() (bool, error) { return true, d.StreamSynchronize(st) },
		"Synchronize":       func() (bool, error) { return true, d.Synchronize() },
	}
	must(t, d.Synchronize())
	for name, call := range calls {
		if done, err := call(); !done || err != nil {
			t.Errorf("%s: %v, %v", name, done, err)
		}
	}
	begun = true
	for name, call := range calls {
		_, err := call()
		wantCode(t, err, driver.LaunchFailed)
		if !errors.Is(err, core.ErrSticky) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Kernels that fault on several streams at once, while others call, give one whole dump, of one of them.
func TestManyFaultsGiveOneDump(t *testing.T) {
	underEachArmed(t, func(t *testing.T, s Schedule) {
		for lies := range 2 {
			p, launch, dump := armed(t, s)
			var releases []func()
			if lies == 1 {
				releases = append(releases, p.d.FalseSuccess())
			}
			var group sync.WaitGroup
			for i := range 4 {
				st, e := p.stream(), p.event()
				releases = append(releases, p.hold(st))
				launch("reach", st, driver.U32(uint32(i)), driver.Ptr(nowhere+uint64(i)*Granule))
				group.Go(func() {
					for p.d.EventRecord(e, st) == nil {
						_, _ = p.d.EventQuery(e)
						_, _ = p.d.StreamQuery(st)
					}
					wantCode(t, p.d.StreamSynchronize(st), driver.IllegalAddress)
				})
			}
			for _, release := range releases {
				release()
			}
			group.Wait()
			d, there := dump()
			if !there || len(d.Faults) != 1 {
				t.Fatalf("the dump is %+v", d)
			}
			if i := binary.LittleEndian.Uint32(d.Grids[0].Params); d.Faults[0].Access.Address != nowhere+uint64(i)*Granule {
				t.Errorf("the grid is %+v, the fault %+v", d.Grids[0], d.Faults[0])
			}
		}
	})
}

// Who watches hears of a kernel by name, before it can fault.
func TestAKernelIsToldOfBeforeItIsEnqueued(t *testing.T) {
	underEachArmed(t, func(t *testing.T, s Schedule) {
		p, launch, dump := armed(t, s)
		told := ""
		must(t, p.d.WatchFaults(func() bool { return false }, func(l *driver.Launch, kernel string) {
			if _, there := dump(); there {
				t.Error("it has faulted before it is told of")
			}
			told += fmt.Sprintf("%s on %d with %d;", kernel, l.Stream, len(l.Args))
		}))
		on := p.stream()
		launch("reach", on, driver.U32(0), driver.Ptr(nowhere))
		if want := fmt.Sprintf("reach on %d with 2;", on); told != want {
			t.Errorf("told was %s, want %s", told, want)
		}
	})
}
