package testkernels_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// bench is a device with a block of n words, and a word behind it in a block
// of its own.
type bench struct {
	*testing.T
	device     *sim.Device
	stream     driver.Stream
	module     driver.Module
	words, sum uint64
}

const n = 1000

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t}
	var err error
	b.device, err = sim.Open(sim.Config{})
	b.must(err)
	t.Cleanup(func() { _ = b.device.Close() })
	b.must(testkernels.Register(b.device))
	b.stream, err = b.device.StreamCreate()
	b.must(err)
	b.module, err = b.device.ModuleLoad(testkernels.Image())
	b.must(err)
	b.words, err = b.device.MemAllocAsync(8*n, 0, b.stream)
	b.must(err)
	b.sum, err = b.device.MemAllocAsync(8, 0, b.stream)
	b.must(err)
	b.must(b.device.MemsetAsync(b.sum, 0, 8, b.stream))
	return b
}

func (b *bench) must(err error) {
	b.Helper()
	must.Do(b, err)
}

func (b *bench) launch(name string, args ...uint64) {
	b.Helper()
	f, err := b.device.ModuleFunction(b.module, name)
	b.must(err)
	l := &driver.Launch{Function: f, Grid: driver.Dim{X: 4}, Block: driver.Dim{X: 128}, Stream: b.stream}
	for _, a := range args {
		l.Args = append(l.Args, driver.U64(a))
	}
	b.must(b.device.Launch(l))
}

func (b *bench) word(ptr uint64) uint64 {
	b.Helper()
	got := make([]byte, 8)
	b.must(b.device.CopyToHostAsync(got, ptr, b.stream))
	b.must(b.device.StreamSynchronize(b.stream))
	return binary.LittleEndian.Uint64(got)
}

func TestCheckCountsWhatWriteAndCopyAddWrote(t *testing.T) {
	b := newBench(t)
	to, err := b.device.MemAllocAsync(8*n, 0, b.stream)
	b.must(err)
	b.launch(testkernels.Delay, 1000)
	b.launch(testkernels.Write, b.words, n, 7)
	b.launch(testkernels.CopyAdd, to, b.words, n, 5)
	b.launch(testkernels.Check, b.words, n, 7, b.sum)
	b.launch(testkernels.Check, to, n, 12, b.sum)
	if got := b.word(b.sum); got != 0 {
		t.Errorf("%d words differ", got)
	}
	b.launch(testkernels.Write, b.words+8*900, 3, 8)
	b.launch(testkernels.Check, b.words, n, 7, b.sum)
	b.launch(testkernels.Check, b.words, n, 7, b.sum)
	if got := b.word(b.sum); got != 6 {
		t.Errorf("%d words differ, want 3 twice", got)
	}
	if found := b.device.Findings(); len(found) > 0 {
		t.Errorf("honest kernels: %v", found)
	}
}

func TestReadAllAddsUpWhatItReads(t *testing.T) {
	b := newBench(t)
	b.launch(testkernels.Write, b.words, n, 7)
	b.launch(testkernels.Write, b.words+8*(n-2), 1, 1000)
	b.launch(testkernels.ReadAll, b.words, n-1, b.sum)
	b.launch(testkernels.ReadAll, b.words, 0, b.sum)
	if got := b.word(b.sum); got != 7*(n-2)+1000 {
		t.Errorf("the sum is %d", got)
	}
	if found := b.device.Findings(); len(found) > 0 {
		t.Errorf("an honest kernel: %v", found)
	}
}

func TestPlantedWritesOutOfBoundsAreFound(t *testing.T) {
	b := newBench(t)
	b.launch(testkernels.OutOfBounds, b.words, n/2, 1)
	if got := b.word(b.words + 8*n/2); got != testkernels.Planted {
		t.Errorf("the word behind is %#x", got)
	}
	if found := b.device.Findings(); len(found) != 1 || found[0].Kind != sim.Undeclared {
		t.Errorf("findings: %v", found)
	}
}

func TestAnIllegalAddressLosesTheContext(t *testing.T) {
	b := newBench(t)
	b.launch(testkernels.Illegal, 16)
	err := b.device.StreamSynchronize(b.stream)
	var e *core.DriverError
	if !errors.As(err, &e) || e.Code != driver.IllegalAddress {
		t.Errorf("got %v", err)
	}
}
