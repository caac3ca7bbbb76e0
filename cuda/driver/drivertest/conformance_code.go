package drivertest

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

func (s *suite) modules() {
	if _, err := s.d.ModuleLoad(driver.Image{Name: "no such image", PTX: []byte("not PTX\x00")}); err == nil {
		s.Fatal("an image that is no code was loaded")
	}
	m, err := s.d.ModuleLoad(s.image(driver.GuardImage))
	s.must(err)
	_, err = s.d.ModuleFunction(m, "no_such_kernel")
	s.wantCode(err, driver.NotFound)
	for _, name := range []string{driver.GuardFillKernel, driver.GuardVerifyKernel} {
		f, err := s.d.ModuleFunction(m, name)
		s.must(err)
		if f == 0 {
			s.Fatalf("kernel %s has the zero handle", name)
		}
	}
	s.must(s.d.ModuleUnload(m))
	s.wantCode(s.d.Launch(&driver.Launch{}), driver.InvalidHandle, driver.InvalidValue)
}

// guardKernels fills two regions, spoils one byte and verifies them.
func (s *suite) guardKernels() {
	st := s.stream()
	m, err := s.d.ModuleLoad(s.image(driver.GuardImage))
	s.must(err)
	const size, pattern, spoiled = 1000, 0x0807060504030201, 333
	target := s.alloc(2*size, st)
	table, results := s.alloc(2*driver.GuardRecord, st), s.alloc(2*driver.GuardRecord, st)
	var records []byte
	for i := range uint64(2) {
		for _, word := range []uint64{target + i*size, size, pattern, 0} {
			records = binary.LittleEndian.AppendUint64(records, word)
		}
	}
	s.must(s.d.CopyToDeviceAsync(table, records, st))
	s.launch(m, driver.GuardFillKernel, st, driver.Ptr(table), driver.U32(2))
	s.must(s.d.MemsetAsync(target+size+spoiled, 0xee, 1, st))
	s.launch(m, driver.GuardVerifyKernel, st, driver.Ptr(table), driver.Ptr(results), driver.U32(2))
	s.wantGuard(s.read(results, 2*driver.GuardRecord, st), spoiled)
	got := s.read(target, 2*size, st)
	for i, b := range got {
		if want := byte(i%size%8 + 1); b != want && i != size+spoiled {
			s.Fatalf("byte %d is %#x, want %#x", i, b, want)
		}
	}
	for _, ptr := range []uint64{target, table, results} {
		s.must(s.d.MemFreeAsync(ptr, st))
	}
	s.must(s.d.StreamSynchronize(st))
	s.must(s.d.ModuleUnload(m))
}

func (s *suite) wantGuard(results []byte, spoiled uint64) {
	s.Helper()
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(results[i*8:]) }
	if word(0) != driver.GuardNoMismatch || word(1) != 0 {
		s.Fatalf("an intact region was reported: offset %d, count %d", word(0), word(1))
	}
	expected := spoiled%8 + 1
	if word(4) != spoiled || word(5) != 1 || word(6)&0xffff != expected|0xee<<8 {
		s.Fatalf("spoiled byte %d was reported as offset %d, count %d, bytes %#x", spoiled, word(4), word(5), word(6))
	}
}

func (s *suite) launch(m driver.Module, name string, st driver.Stream, args ...driver.Arg) {
	s.Helper()
	f, err := s.d.ModuleFunction(m, name)
	s.must(err)
	one := driver.Dim{X: 1, Y: 1, Z: 1}
	s.must(s.d.Launch(&driver.Launch{Function: f, Grid: driver.Dim{X: 2, Y: 1, Z: 1}, Block: one, Stream: st, Args: args}))
}

// threads uses the driver from several goroutines, each on its own stream.
func (s *suite) threads() {
	var group sync.WaitGroup
	errs := make(chan error, 8)
	for i := range cap(errs) {
		group.Go(func() { errs <- s.thread(byte(i + 1)) })
	}
	group.Wait()
	close(errs)
	for err := range errs {
		s.must(err)
	}
}

func (s *suite) thread(value byte) error {
	st, err := s.d.StreamCreate()
	if err != nil {
		return err
	}
	got := make([]byte, 64<<10)
	for range 50 {
		ptr, err := s.d.MemAllocAsync(uint64(len(got)), 0, st)
		if err != nil {
			return err
		}
		err = firstError(
			func() error { return s.d.MemsetAsync(ptr, value, uint64(len(got)), st) },
			func() error { return s.d.CopyToHostAsync(got, ptr, st) },
			func() error { return s.d.MemFreeAsync(ptr, st) },
			func() error { return s.d.StreamSynchronize(st) },
		)
		if err != nil {
			return err
		}
		if got[0] != value || got[len(got)-1] != value {
			return fmt.Errorf("a block of stream %#x holds %#x and %#x, want %#x", st, got[0], got[len(got)-1], value)
		}
	}
	return s.d.StreamDestroy(st)
}

func firstError(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
