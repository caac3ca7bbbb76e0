package drivertest

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// conformanceCases are the groups of the suite; each gets a device of its own.
var conformanceCases = []struct {
	name string
	run  func(*suite)
}{
	{"identity", (*suite).identity},
	{"allocation", (*suite).allocation},
	{"direct allocation", (*suite).directAllocation},
	{"mixed frees", (*suite).mixedFrees},
	{"invalid pointers", (*suite).invalidPointers},
	{"out of memory", (*suite).outOfMemory},
	{"pools", (*suite).pools},
	{"pool limit", (*suite).poolLimit},
	{"pool destroy", (*suite).poolDestroy},
	{"host memory", (*suite).hostMemory},
	{"mapped memory", mapping((*suite).mappedMemory)},
	{"mapped memory outlives its handle", mapping((*suite).mappingOutlivesHandle)},
	{"memory mapped again", mapping((*suite).mappedAgain)},
	{"memory mapped in a row", mapping((*suite).mappedInARow)},
	{"memory mapped beside work", mapping((*suite).mappedBesideWork)},
	{"what a mapping refuses", mapping((*suite).mappingRefuses)},
	{"memset and copies", (*suite).transfers},
	{"empty transfers", (*suite).emptyTransfers},
	{"stream order", (*suite).streamOrder},
	{"stream handles", (*suite).streamHandles},
	{"default stream", (*suite).defaultStream},
	{"destroyed stream", (*suite).destroyedStream},
	{"event never recorded", (*suite).eventNeverRecorded},
	{"event handles", (*suite).eventHandles},
	{"cross-stream wait", (*suite).crossStreamWait},
	{"record again", (*suite).recordAgain},
	{"destroyed event", (*suite).destroyedEvent},
	{"event times", (*suite).eventTimes},
	{"query after synchronize", (*suite).queryAfterSynchronize},
	{"polling ends", (*suite).pollingEnds},
	{"capture", (*suite).capture},
	{"capture of several streams", (*suite).captureOfStreams},
	{"what a capture prohibits", (*suite).captureProhibits},
	{"captures stay apart", (*suite).capturesApart},
	{"capture beside other work", (*suite).captureLeavesOthersAlone},
	{"reuse on one stream", (*suite).reuseOnOneStream},
	{"modules", (*suite).modules},
	{"guard kernels", (*suite).guardKernels},
	{"threads", (*suite).threads},
}

// Conformance runs the semantics that every driver must have. open returns a
// fresh driver, which the suite closes. The suite needs about 64 MiB of device
// memory; it makes no assumption about how long work takes. Kernels other than
// those of guardkernels.Image are not used.
func Conformance(t *testing.T, open func(t *testing.T) driver.Driver) {
	for _, c := range conformanceCases {
		t.Run(c.name, func(t *testing.T) {
			d := open(t)
			t.Cleanup(func() {
				if err := d.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			c.run(&suite{T: t, d: d})
		})
	}
}

// suite is one case on one device, with helpers that fail the test.
type suite struct {
	*testing.T
	d driver.Driver
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// wantCode requires a driver error with one of the codes.
func (s *suite) wantCode(err error, codes ...int) {
	s.Helper()
	var e *core.DriverError
	if !errors.As(err, &e) {
		s.Fatalf("got %v, want a *core.DriverError with one of the codes %v", err, codes)
	}
	if !slices.Contains(codes, e.Code) {
		s.Fatalf("got %v, want one of the codes %v", err, codes)
	}
}

func (s *suite) stream() driver.Stream {
	s.Helper()
	h, err := s.d.StreamCreate()
	s.must(err)
	return h
}

func (s *suite) event() driver.Event {
	s.Helper()
	h, err := s.d.EventCreate()
	s.must(err)
	return h
}

func (s *suite) alloc(bytes uint64, st driver.Stream) uint64 {
	s.Helper()
	ptr, err := s.d.MemAllocAsync(bytes, 0, st)
	s.must(err)
	return ptr
}

func (s *suite) direct(bytes uint64) uint64 {
	s.Helper()
	ptr, err := s.d.MemAlloc(bytes)
	s.must(err)
	return ptr
}

func (s *suite) pool(c driver.PoolConfig) driver.Pool {
	s.Helper()
	p, err := s.d.PoolCreate(c)
	s.must(err)
	return p
}

// read returns n bytes at ptr after the work of st.
func (s *suite) read(ptr, n uint64, st driver.Stream) []byte {
	s.Helper()
	b := make([]byte, n)
	s.must(s.d.CopyToHostAsync(b, ptr, st))
	s.must(s.d.StreamSynchronize(st))
	return b
}

// wantAll requires that all bytes have one value.
func (s *suite) wantAll(b []byte, value byte) {
	s.Helper()
	if bytes.Count(b, []byte{value}) == len(b) {
		return // quick, for large blocks under the race detector
	}
	for i, got := range b {
		if got != value {
			s.Fatalf("byte %d of %d is %#x, want %#x", i, len(b), got, value)
		}
	}
}

// wantApart requires that two ranges do not overlap.
func (s *suite) wantApart(a, aBytes, b, bBytes uint64) {
	s.Helper()
	if a < b+bBytes && b < a+aBytes {
		s.Fatalf("live blocks overlap: %#x+%d and %#x+%d", a, aBytes, b, bBytes)
	}
}
