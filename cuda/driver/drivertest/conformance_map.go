package drivertest

import (
	"bytes"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// mapping is a case over mapped memory, of the granularity g and a size in whole
// granules of about 4 MiB. A device that cannot map must say so in an error that
// can be told.
func mapping(run func(s *suite, size, g uint64)) func(*suite) {
	return func(s *suite) {
		p, err := s.d.Properties()
		s.must(err)
		g := p.MapGranularity
		if g == 0 {
			if _, err := s.d.MemReserve(2 << 20); !errors.Is(err, errors.ErrUnsupported) {
				s.Fatalf("a device without a granularity reserves addresses: %v", err)
			}
			return
		}
		if g&(g-1) != 0 || g < core.DefaultAlign {
			s.Fatalf("the granularity is %d", g)
		}
		run(s, max(2*g, 4<<20), g)
	}
}

// mapped reserves, creates and maps size bytes.
func (s *suite) mapped(size uint64) (ptr uint64, h driver.MemHandle) {
	s.Helper()
	ptr, err := s.d.MemReserve(size)
	s.must(err)
	h, err = s.d.MemCreate(size)
	s.must(err)
	if h == 0 || ptr == 0 {
		s.Fatalf("memory %#x at %#x", h, ptr)
	}
	s.must(s.d.MemMap(ptr, size, h))
	s.must(s.d.MemAccess(ptr, size))
	return ptr, h
}

func (s *suite) mappedMemory(size, granularity uint64) {
	st := s.stream()
	s.mapAndUse(size, granularity, st) // what the driver takes at the first use is not ours
	before := s.free()
	a, b := s.mapAndUse(size, granularity, st)
	if after := s.free(); after < before {
		s.Fatalf("%d bytes are missing from the device after all was unmapped and released", before-after)
	}
	c, err := s.d.MemReserve(size)
	s.must(err)
	s.wantApart(a, size, c, size) // the addresses are still taken
	s.must(s.d.MemUnreserve(a, size))
	s.must(s.d.MemUnreserve(b, granularity))
	s.must(s.d.MemUnreserve(c, size))
}

// mapAndUse maps, uses and unmaps two ranges, and leaves their addresses
// reserved.
func (s *suite) mapAndUse(size, granularity uint64, st driver.Stream) (a, b uint64) {
	s.Helper()
	before := s.free()
	a, memory := s.mapped(size)
	b, other := s.mapped(granularity)
	s.wantApart(a, size, b, granularity)
	if a%granularity != 0 || b%granularity != 0 {
		s.Fatalf("%#x or %#x is not aligned to %d", a, b, granularity)
	}
	if after := s.free(); after > before || before-after < size+granularity {
		s.Fatalf("%d bytes are mapped; of %d free bytes %d are left", size+granularity, before, after)
	}
	s.must(s.d.MemsetAsync(a, 0x11, size, st))
	s.must(s.d.MemsetAsync(b, 0x22, granularity, st))
	s.must(s.d.CopyOnDeviceAsync(a+size-granularity, b, granularity, st))
	got := s.read(a, size, st)
	s.wantAll(got[:size-granularity], 0x11)
	s.wantAll(got[size-granularity:], 0x22)
	s.must(s.d.MemUnmap(a, size))
	s.must(s.d.MemUnmap(b, granularity))
	s.must(s.d.MemRelease(memory))
	s.must(s.d.MemRelease(other))
	return a, b
}

// mappingOutlivesHandle: an unmap gives memory back whose handle is released.
func (s *suite) mappingOutlivesHandle(size, _ uint64) {
	st := s.stream()
	for _, measured := range []bool{false, true} {
		before := s.free()
		ptr, h := s.mapped(size)
		s.must(s.d.MemRelease(h))
		s.must(s.d.MemsetAsync(ptr, 0x33, size, st))
		s.wantAll(s.read(ptr, size, st), 0x33)
		s.must(s.d.MemUnmap(ptr, size))
		if after := s.free(); measured && after < before {
			s.Fatalf("%d bytes are missing from the device after the unmap", before-after)
		}
		s.must(s.d.MemUnreserve(ptr, size))
	}
}

// pages reserves addresses for n granules, and makes as many handles of one each,
// which are mapped nowhere.
func (s *suite) pages(granularity, n uint64) (ptr uint64, handles []driver.MemHandle) {
	s.Helper()
	ptr, err := s.d.MemReserve(n * granularity)
	s.must(err)
	for range n {
		h, err := s.d.MemCreate(granularity)
		s.must(err)
		handles = append(handles, h)
	}
	return ptr, handles
}

// giveBack undoes pages, when nothing is mapped.
func (s *suite) giveBack(ptr, granularity uint64, handles []driver.MemHandle) {
	s.Helper()
	for _, h := range handles {
		s.must(s.d.MemRelease(h))
	}
	s.must(s.d.MemUnreserve(ptr, uint64(len(handles))*granularity))
}

// mapRow maps memory at addresses in a row, and lets the device at all of it by
// one call.
func (s *suite) mapRow(ptr, granularity uint64, handles ...driver.MemHandle) {
	s.Helper()
	for i, h := range handles {
		s.must(s.d.MemMap(ptr+uint64(i)*granularity, granularity, h))
	}
	s.must(s.d.MemAccess(ptr, uint64(len(handles))*granularity))
}

// keeps requires that n bytes at ptr are set to value and have it.
func (s *suite) keeps(ptr, n uint64, value byte, st driver.Stream) {
	s.Helper()
	s.must(s.d.MemsetAsync(ptr, value, n, st))
	s.wantAll(s.read(ptr, n, st), value)
}

// mappedAgain: memory whose handle is kept gets other addresses, alone or with
// others in a row, and is taken until its handle and its mapping are gone.
func (s *suite) mappedAgain(_, g uint64) {
	st := s.stream()
	for _, measured := range []bool{false, true} { // what the driver takes at the first use is not ours
		before := s.free()
		ptr, h := s.pages(g, 4)
		s.mapRow(ptr, g, h[0], h[1], h[2])
		s.keeps(ptr, 3*g, 0x11, st)
		s.must(s.d.MemUnmap(ptr, 2*g)) // and not the third
		if after := s.free(); after > before || before-after < 4*g {
			s.Fatalf("%d bytes have handles; of %d free bytes %d are left", 4*g, before, after)
		}
		s.wantAll(s.read(ptr+2*g, g, st), 0x11)
		s.mapRow(ptr, g, h[1], h[3]) // where others were
		s.keeps(ptr, 3*g, 0x22, st)
		s.must(s.d.MemAccess(ptr, 3*g)) // which it is
		s.wantAll(s.read(ptr, 3*g, st), 0x22)
		s.mapRow(ptr+3*g, g, h[0])
		s.keeps(ptr+g/2, 3*g, 0x33, st)
		for _, each := range h {
			s.must(s.d.MemRelease(each))
		}
		s.wantAll(s.read(ptr+g/2, 3*g, st), 0x33)
		s.must(s.d.MemUnmap(ptr, 4*g))
		if after := s.free(); measured && after < before {
			s.Fatalf("%d bytes are missing from the device after all was unmapped and released", before-after)
		}
		s.must(s.d.MemUnreserve(ptr, 4*g))
	}
}

// mappedBesideWork: what is mapped and unmapped changes nothing for work that is
// queued or runs on other addresses of the same range.
func (s *suite) mappedBesideWork(_, g uint64) {
	st := s.stream()
	ptr, h := s.pages(g, 4)
	s.mapRow(ptr, g, h[0], h[1])
	for i := range 16 {
		for value := range byte(8) {
			s.must(s.d.MemsetAsync(ptr, value, g, st))
			s.must(s.d.CopyOnDeviceAsync(ptr+g, ptr, g, st))
		}
		place := ptr + uint64(2+i%2)*g
		s.mapRow(place, g, h[2])
		s.must(s.d.MemUnmap(place, g))
	}
	s.wantAll(s.read(ptr, 2*g, st), 7)
	s.must(s.d.MemUnmap(ptr, 2*g))
	s.giveBack(ptr, g, h)
}

// mappedInARow: work takes mappings in a row for one memory, captured work too.
func (s *suite) mappedInARow(_, g uint64) {
	st := s.stream()
	ptr, h := s.pages(g, 4)
	s.mapRow(ptr, g, h...)
	direct := s.direct(2 * g)
	upload := bytes.Repeat([]byte{0x55}, int(2*g))
	s.must(s.d.MemsetAsync(ptr, 0x66, 4*g, st))
	s.must(s.d.CopyToDeviceAsync(ptr+g/2, upload, st))
	s.must(s.d.CopyOnDeviceAsync(direct, ptr+g/2, 2*g, st))
	s.wantAll(s.read(direct, 2*g, st), 0x55)
	s.must(s.d.CopyOnDeviceAsync(ptr+2*g, direct, 2*g, st))
	s.wantAll(s.read(ptr+g/2, 3*g+g/2, st), 0x55)
	s.must(s.d.MemsetAsync(ptr, 0x77, 4*g, st))
	s.must(s.d.CopyFromPeerAsync(direct, s.d, ptr+g, 2*g, st))
	s.wantAll(s.read(direct, 2*g, st), 0x77)
	s.wantAll(s.read(ptr+g/2, 3*g, st), 0x77)

	s.must(s.d.StreamBeginCapture(st))
	s.must(s.d.MemsetAsync(ptr, 0x11, 2*g, st))
	s.must(s.d.CopyOnDeviceAsync(ptr+2*g, ptr, 2*g, st))
	s.must(s.d.CopyOnDeviceAsync(direct, ptr+3*g-g/2, g, st))
	graph, err := s.d.StreamEndCapture(st)
	s.must(err)
	s.must(s.d.GraphLaunch(graph, st))
	s.wantAll(s.read(ptr, 4*g, st), 0x11)
	s.wantAll(s.read(direct, g, st), 0x11)
	s.must(s.d.GraphDestroy(graph))
	s.must(s.d.MemFree(direct))
	s.must(s.d.MemUnmap(ptr, 4*g))
	s.giveBack(ptr, g, h)
}

func (s *suite) mappingRefuses(size, granularity uint64) {
	_, err := s.d.MemReserve(0)
	s.wantCode(err, driver.InvalidValue)
	for _, bytes := range []uint64{0, granularity / 2} {
		_, err = s.d.MemCreate(bytes)
		s.wantCode(err, driver.InvalidValue)
	}
	if _, err := s.d.MemCreate(absurd); !errors.Is(err, core.ErrOutOfMemory) {
		s.Fatalf("MemCreate: got %v, want out of memory", err)
	}
	ptr, h := s.mapped(size)
	if err := s.d.MemMap(ptr, size, h); err == nil {
		s.Fatal("memory was mapped where there is some")
	}
	for _, part := range [...]uint64{ptr, ptr + granularity} {
		if err := s.d.MemUnmap(part, size-granularity); err == nil {
			s.Fatal("a part of a mapping was unmapped")
		}
	}
	if err := s.d.MemUnreserve(ptr, size); err == nil {
		s.Fatal("addresses were given back at which there is memory")
	}
	s.keeps(ptr, size, 0x44, s.stream())
	s.must(s.d.MemUnmap(ptr, size)) // a second time may be refused or not
	s.must(s.d.MemRelease(h))
	s.must(s.d.MemUnreserve(ptr, size))
}

func (s *suite) free() uint64 {
	s.Helper()
	free, _, err := s.d.MemInfo()
	s.must(err)
	return free
}
