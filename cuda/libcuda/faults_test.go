package libcuda_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
)

// Attributes of core dumps and flags, by CUDA's header.
const (
	onException = 1
	dumpedFile  = 5
	dumpFlags   = 7

	skipGlobal, skipShared, skipLocal, skipAbort, skipConstants = 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5
)

func (f *fake) dumpAttribute(attribute, i int) uint64 {
	return f.control("fake_dump_attribute", uintptr(attribute), uintptr(i))
}

// armOnce is for a device that has no context.
func armOnce(l *libcuda.Library) error {
	if err := l.ArmDump(1, "pipe"); err != nil {
		return err
	}
	return l.DisarmDump()
}

// A dump goes to the file, holds none of the device's memory, and does not end the process.
func TestADumpIsArmed(t *testing.T) {
	f := newFake(t)
	l := f.load()
	must(t, l.ArmDump(0, "/a/pipe"))
	file := ""
	for i := 0; f.dumpAttribute(dumpedFile, i) != 0; i++ {
		file += string(rune(f.dumpAttribute(dumpedFile, i)))
	}
	equal(t, "the file", file, "/a/pipe")
	const without = skipGlobal | skipShared | skipLocal | skipAbort | skipConstants
	equal(t, "what is left out", f.dumpAttribute(dumpFlags, 0)&without, without)
	equal(t, "armed", f.dumpAttribute(onException, 0), 1)
	if err := l.ArmDump(0, "/b"); !errors.Is(err, libcuda.ErrDumpsTaken) {
		t.Errorf("where one is armed another gives %v", err)
	}
	must(t, l.DisarmDump())
	equal(t, "armed", f.dumpAttribute(onException, 0), 0)
}

func TestADumpIsNotArmedWhereItCannotBe(t *testing.T) {
	f := newFake(t)
	l := f.load()
	d, err := l.Open(0)
	must(t, err)
	if err := l.ArmDump(0, "/a"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("with a context: %v", err)
	}
	must(t, d.Close())
	t.Setenv("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1")
	if err := l.ArmDump(0, "/a"); !errors.Is(err, libcuda.ErrDumpsTaken) {
		t.Errorf("armed by the environment: %v", err)
	}
	t.Setenv("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "0")
	f.set("version", 12040)
	if err := f.load().ArmDump(0, "/a"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("an old driver: %v", err)
	}
	f.set("version", 12050)
	must(t, f.load().ArmDump(0, "/a"))
	must(t, l.DisarmDump())
	for _, symbol := range []string{"cuCoredumpGetAttributeGlobal", "cuCoredumpSetAttributeGlobal", "cuDevicePrimaryCtxGetState"} {
		for k := 1; k <= f.calls(symbol); k++ {
			f.fail(symbol, k, driver.InvalidValue)
			if err := f.load().ArmDump(0, "/a"); err == nil {
				f.fail(symbol, 0, 0)
				must(t, l.DisarmDump())
				break
			}
			equal(t, "armed after "+symbol+" failed", f.dumpAttribute(onException, 0), 0)
		}
	}
}

// While a dump is under way nothing is said to be done; before, all that completes are events with timing.
func TestNothingIsDoneWhileADumpIsUnderWay(t *testing.T) {
	f := newFake(t)
	d := f.open()
	var begun atomic.Bool
	must(t, d.WatchFaults(begun.Load, nil))
	s, err := d.StreamCreate()
	must(t, err)
	e, err := d.EventCreate()
	must(t, err)
	ended := map[string]func() error{
		"cuEventQuery":        func() error { return done(d.EventQuery(e)) },
		"cuEventSynchronize":  func() error { return d.EventSynchronize(e) },
		"cuStreamQuery":       func() error { return done(d.StreamQuery(s)) },
		"cuStreamSynchronize": func() error { return d.StreamSynchronize(s) },
		"cuCtxSynchronize":    d.Synchronize,
	}
	equal(t, "flags of an event", f.arg("cuEventCreate", 1), 0) // it has timing
	before := f.calls("cuEventRecord")
	must(t, d.StreamSynchronize(s))
	equal(t, "records in front of a wait", f.calls("cuEventRecord")-before, 1)
	for _, call := range ended {
		must(t, call())
	}
	begun.Store(true)
	for name, call := range ended {
		if fault := driverError(t, call(), name, driver.LaunchFailed); !fault.Sticky {
			t.Errorf("%s: the error is not sticky", name)
		}
	}
	begun.Store(false)
	must(t, d.EventDestroy(e))
	must(t, d.StreamDestroy(s))
}

func done(done bool, err error) error {
	if err == nil && !done {
		return errors.New("not done")
	}
	return err
}

// Who watches hears of the kernels that were enqueued, by name, and of no others.
func TestEnqueuedKernelsAreToldByName(t *testing.T) {
	f := newFake(t)
	d := f.open()
	var told []string
	must(t, d.WatchFaults(func() bool { return false }, func(l *driver.Launch, kernel string) {
		told = append(told, kernel)
	}))
	b := newBench(t, f, d)
	defer b.close()
	must(t, d.Launch(b.launch()))
	f.fail("cuLaunchKernel", 1, driver.InvalidValue)
	if d.Launch(b.launch()) == nil {
		t.Error("a launch that fails does not")
	}
	f.fail("cuLaunchKernel", 0, 0)
	equal(t, "told", fmt.Sprint(told), "[fake_echo3]")
}
