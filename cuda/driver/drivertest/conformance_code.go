package drivertest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
)

func (s *suite) modules() {
	if _, err := s.d.ModuleLoad(driver.Image{Name: "no such image", PTX: []byte("not PTX\x00")}); err == nil {
		s.Fatal("an image that is no code was loaded")
	}
	m, err := s.d.ModuleLoad(guardkernels.Image())
	s.must(err)
	_, err = s.d.ModuleFunction(m, "no_such_kernel")
	s.wantCode(err, driver.NotFound)
	for _, name := range []string{driver.GuardFillKernel, driver.GuardFillFewKernel, driver.GuardVerifyKernel} {
		f, err := s.d.ModuleFunction(m, name)
		s.must(err)
		if f == 0 {
			s.Fatalf("kernel %s has the zero handle", name)
		}
	}
	delay, err := s.d.ModuleFunction(m, driver.GuardDelayKernel)
	s.must(err)
	for _, block := range []driver.Dim{{X: 1025}, {Y: 1025}, {Z: 65}, {X: 32, Y: 32, Z: 2}} {
		s.wantCode(s.d.Launch(&driver.Launch{Function: delay, Block: block, Args: []driver.Arg{driver.U64(0)}}), driver.InvalidValue)
	}
	s.must(s.d.ModuleUnload(m))
	s.wantCode(s.d.Launch(&driver.Launch{}), driver.InvalidHandle, driver.InvalidValue)
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
		err = errors.Join(s.d.MemsetAsync(ptr, value, uint64(len(got)), st), s.d.CopyToHostAsync(got, ptr, st),
			s.d.MemFreeAsync(ptr, st), s.d.StreamSynchronize(st))
		if err != nil {
			return err
		}
		if got[0] != value || got[len(got)-1] != value {
			return fmt.Errorf("a block of stream %#x holds %#x and %#x, want %#x", st, got[0], got[len(got)-1], value)
		}
	}
	return s.d.StreamDestroy(st)
}
