package sim

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

func TestOpenChecksItsConfig(t *testing.T) {
	for _, c := range []Config{{Ordinal: -1}, {Ordinal: core.MaxOrdinals}, {Bytes: 1000}, {Bytes: 1 << 60}} {
		if d, err := Open(c); !errors.Is(err, core.ErrInvalidRequest) {
			t.Errorf("%+v: got %v, %v", c, d, err)
		}
	}
}

// residentBytes is what the process has of the machine's memory.
func residentBytes(t *testing.T) uint64 {
	stat, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("no /proc here")
	}
	pages, err := strconv.ParseUint(string(bytes.Fields(stat)[1]), 10, 64)
	must(t, err)
	return pages * uint64(os.Getpagesize())
}

func TestUntouchedMemoryCostsNothing(t *testing.T) {
	d, err := Open(Config{})
	must(t, err)
	defer func() { must(t, d.Close()) }()
	before := residentBytes(t)
	p := newProgram(t, d)
	s := p.stream()
	ptr := p.alloc(15<<30, s)
	must(t, d.MemsetAsync(ptr+14<<30, 1, 4096, s))
	must(t, d.StreamSynchronize(s))
	if grown := int64(residentBytes(t)) - int64(before); grown > 64<<20 {
		t.Errorf("15 GiB hardly touched took %d bytes", grown)
	}
}

func TestStickyErrors(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s := p.stream()
		d.StickyAt(2, driver.ECCUncorrectable)
		must(t, d.StreamSynchronize(s))
		wantCode(t, d.StreamSynchronize(s), driver.ECCUncorrectable)
		wantLost(t, d, s, driver.ECCUncorrectable)
	})
	underEach(t, func(t *testing.T, d *Device) {
		s := newProgram(t, d).stream()
		d.LoseContext(driver.LaunchTimeout)
		wantLost(t, d, s, driver.LaunchTimeout)
	})
}

func wantCode(t testing.TB, err error, code int) {
	t.Helper()
	var e *core.DriverError
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("got %v, want code %d", err, code)
	}
}

// wantLost requires that every call fails with the code, and Close does not.
func wantLost(t *testing.T, d *Device, s driver.Stream, code int) {
	t.Helper()
	_, err := d.MemAllocAsync(64, 0, s)
	wantCode(t, err, code)
	wantCode(t, d.Synchronize(), code)
	wantCode(t, d.StreamSynchronize(s), code)
	wantCode(t, d.StreamDestroy(s), code)
	_, err = d.StreamQuery(s)
	wantCode(t, err, code)
	if !errors.Is(err, core.ErrSticky) {
		t.Errorf("%v is not sticky", err)
	}
	must(t, d.Close())
	_, err = d.EventCreate()
	wantCode(t, err, driver.Deinitialized)
}

func TestIllegalAddressTakesTheContext(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s := p.stream()
		p.launch("wild", 0xdead0000, 1, s)
		wantCode(t, d.StreamSynchronize(s), driver.IllegalAddress)
		if f := d.Findings(); len(f) != 1 || f[0].Kind != IllegalAddress || f[0].First.Op != "wild" {
			t.Errorf("findings: %v", f)
		}
		if err := d.Synchronize(); err == nil || !strings.Contains(err.Error(), "wild touched memory at 0xdead0000 (1 bytes), where nothing is mapped") {
			t.Errorf("later calls do not say what was touched: %v", err)
		}
		wantLost(t, d, s, driver.IllegalAddress)
	})
}

// A kernel that does not return is a failed launch, whatever ended it, and no stream stands still.
func TestAKernelThatDoesNotReturnIsAFailedLaunch(t *testing.T) {
	exits := `called runtime\.Goexit\S* .* at device_test\.go:\d+`
	for how, c := range map[string]struct {
		end  func()
		says string
	}{
		"panic":          {func() { panic("out of ideas") }, `panicked at device_test\.go:\d+: .*out of ideas`},
		"panic of nil":   {func() { panic(nil) }, `panicked at device_test\.go:\d+: `}, //nolint:govet // the kernel's bug
		"Goexit":         {runtime.Goexit, exits},
		"FailNow":        {func() { new(testing.T).FailNow() }, exits},
		"Goexit, caught": {func() { defer func() { _ = recover() }(); runtime.Goexit() }, exits},
	} {
		underEach(t, func(t *testing.T, d *Device) {
			p := newProgram(t, d)
			must(t, d.RegisterModule("bad", Kernel{Name: "bad", Indirect: true, Run: func(x *Exec) {
				x.Read(x.Args().Ptr(0), 101)
				c.end()
			}}))
			m, err := d.ModuleLoad(driver.Image{Name: "bad"})
			must(t, err)
			f, err := d.ModuleFunction(m, "bad")
			must(t, err)
			s, other := p.stream(), p.stream()
			ptr := p.alloc(100, s)
			release := p.hold(s)
			must(t, d.Launch(&driver.Launch{Function: f, Stream: s, Args: []driver.Arg{driver.Ptr(ptr)}}))
			p.launch("read", ptr, 100, s)
			p.order(s, other)
			p.launch("read", ptr, 100, other)
			release()
			wantCode(t, d.Synchronize(), driver.LaunchFailed)
			wantCode(t, d.StreamSynchronize(other), driver.LaunchFailed)
			var lost *core.DriverError
			said := regexp.MustCompile(`kernel "bad" ` + c.says)
			if err := d.Synchronize(); !errors.As(err, &lost) || !said.MatchString(lost.Detail) {
				t.Errorf("%s: later calls do not say which kernel ended, where and how: %v", how, err)
			}
			wantLost(t, d, s, driver.LaunchFailed)
			must(t, d.Close()) // it waits for the oracle
			kinds := map[Kind]int{}
			for _, f := range d.Findings() {
				kinds[f.Kind]++
			}
			if len(kinds) != 2 || kinds[KernelPanic] != 1 || kinds[OutOfBounds] != 1 {
				t.Errorf("%s: findings: %v", how, d.Findings())
			}
		})
	}
}

// A listener that ends its goroutine ends no stream and no call.
func TestAListenerThatEndsItsGoroutineHoldsNothingUp(t *testing.T) {
	for _, s := range schedules[:2] {
		t.Run(s.String(), func(t *testing.T) {
			d, err := Open(Config{Bytes: 64 << 20, Schedule: s, OnFinding: func(Finding) { runtime.Goexit() }})
			must(t, err)
			defer func() { must(t, d.Close()) }()
			p := newProgram(t, d)
			a, b := p.stream(), p.stream()
			ptr := p.alloc(100, a)
			p.launch("read", ptr, 101, a)
			p.launch("read", ptr, 100, b) // before the allocation
			must(t, d.StreamSynchronize(a))
			must(t, d.StreamSynchronize(b))
			p.free(ptr, a)
			must(t, d.Synchronize())
			if found := d.FindingCount(); found < 2 {
				t.Errorf("%d findings: %v", found, d.Findings())
			}
		})
	}
}

// A twin that asks an accessor for nonsense is at fault, and not the accessor.
func TestAPanicOfAnAccessorIsThatOfTheKernel(t *testing.T) {
	d := open(t, FreeRunning())
	must(t, d.RegisterModule("nonsense", Kernel{Name: "nonsense", Run: func(x *Exec) { ReadSlice[uint32](x, 2, 1) }}))
	module, err := d.ModuleLoad(driver.Image{Name: "nonsense"})
	must(t, err)
	f, err := d.ModuleFunction(module, "nonsense")
	must(t, err)
	must(t, d.Launch(&driver.Launch{Function: f}))
	if err := d.Synchronize(); err == nil || !strings.Contains(err.Error(), "panicked at device_test.go:") {
		t.Errorf("%v", err)
	}
}

func TestRegisterModuleRefusesAKernelThatCannotRun(t *testing.T) {
	d := open(t, FreeRunning())
	err := d.RegisterModule("code", Kernel{Name: "lame"})
	if !errors.Is(err, core.ErrInvalidRequest) || !strings.Contains(err.Error(), `RegisterModule: kernels: kernel "lame" of the code "code"`) {
		t.Errorf("%v", err)
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	d := open(t, FreeRunning())
	p := newProgram(t, d)
	f, err := d.ModuleFunction(p.module, "read")
	must(t, err)
	wantCode(t, d.Launch(&driver.Launch{Function: f, Args: []driver.Arg{driver.U32(1)}}), driver.InvalidValue)
	must(t, d.ModuleUnload(p.module))
	wantCode(t, d.Launch(&driver.Launch{Function: f}), driver.InvalidHandle)
	_, err = d.ModuleLoad(driver.Image{Name: "unknown"})
	wantCode(t, err, driver.InvalidImage)
}

func TestHandlesAreNeverConfused(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s, e := p.stream(), p.event()
		must(t, d.StreamDestroy(s))
		must(t, d.EventDestroy(e))
		live, fresh := p.stream(), p.event()
		if live == s || fresh == e {
			t.Fatal("a handle was given out twice")
		}
		wantCode(t, d.StreamSynchronize(s), driver.InvalidHandle)
		wantCode(t, d.MemsetAsync(0, 0, 0, s), driver.InvalidHandle)
		wantCode(t, d.EventRecord(e, live), driver.InvalidHandle)
		wantCode(t, d.EventDestroy(e), driver.InvalidHandle)
		_, err := d.MemAllocAsync(64, 12345, live)
		wantCode(t, err, driver.InvalidHandle)
		wantCode(t, d.StreamDestroy(0), driver.InvalidHandle)
	})
}

func TestTypedSlices(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s := p.stream()
		ptr := p.alloc(400, s)
		must(t, d.MemsetAsync(ptr, 1, 400, s))
		p.launch("double", ptr, 400, s)
		got := make([]byte, 400)
		must(t, d.CopyToHostAsync(got, ptr, s))
		must(t, d.StreamSynchronize(s))
		if slices.Max(got) != 2 || slices.Min(got) != 2 {
			t.Errorf("got %v, want all 2", got)
		}
		p.wantClean()
	})
}

// Close ends goroutines that wait for what will not come.
func TestCloseDiscardsWhatIsQueued(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		a, b := p.stream(), p.stream()
		p.hold(a)
		ptr := p.alloc(64, a)
		p.order(a, b)
		p.launch("write", ptr, 64, b)
		must(t, d.SlowStream(0, time.Hour))
		must(t, d.MemsetAsync(ptr, 0, 64, 0))
		must(t, d.Close())
		must(t, d.Close())
		wantCode(t, d.Synchronize(), driver.Deinitialized)
	})
}

func TestBooks(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s, e := p.stream(), p.event()
		m, err := d.HostAlloc(100)
		must(t, err)
		a := p.alloc(1000, s)
		release := p.hold(s)
		b := p.alloc(50, s)
		p.free(a, s)
		got := d.Books()
		want := Books{LiveBlocks: 1, LiveBytes: 50, HostBlocks: 1, HostBytes: 100, PendingFrees: 1, PendingBytes: 1000,
			Reserved: Granule, QueuedOps: got.QueuedOps, Streams: 1, Events: 1, Modules: 1}
		if got != want || got.QueuedOps == 0 {
			t.Errorf("got %+v, want %+v", got, want)
		}
		release()
		p.free(b, s)
		must(t, d.EventDestroy(e))
		must(t, d.HostFree(m))
		must(t, d.StreamDestroy(s))
		must(t, d.ModuleUnload(p.module))
		if got := d.Books(); got != (Books{}) {
			t.Errorf("something is left: %+v", got)
		}
	})
}

func TestStreamHandlesComeAgainIfTheyAreToldTo(t *testing.T) {
	for _, again := range []bool{false, true} {
		d, err := Open(Config{ReuseStreamHandles: again})
		must(t, err)
		t.Cleanup(func() { must(t, d.Close()) })
		first, err := d.StreamCreate()
		must(t, err)
		must(t, d.StreamDestroy(first))
		if err := d.StreamDestroy(first); err == nil {
			t.Error("a handle that names nothing was destroyed")
		}
		second, err := d.StreamCreate()
		if err != nil || (second == first) != again || second == 0 {
			t.Errorf("again %v: %#x, then %#x, %v", again, first, second, err)
		}
		if err := d.StreamSynchronize(first); (err == nil) != again {
			t.Errorf("again %v: the first handle: %v", again, err)
		}
	}
}
