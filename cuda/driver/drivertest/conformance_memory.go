package drivertest

import (
	"bytes"
	"errors"
	"regexp"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// absurd is more memory than any device has.
const absurd uint64 = 1 << 60

// What identifies a device has NVIDIA's form, which other tools print too.
var (
	uuidForm  = regexp.MustCompile(`^(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	busIDForm = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)
)

func (s *suite) identity() {
	p, err := s.d.Properties()
	s.must(err)
	if s.d.Ordinal() < 0 || p.Name == "" || p.TotalBytes == 0 {
		s.Fatalf("ordinal %d, properties %+v: want a name and memory", s.d.Ordinal(), p)
	}
	if p.UUID != "" && !uuidForm.MatchString(p.UUID) || p.PCIBusID != "" && !busIDForm.MatchString(p.PCIBusID) {
		s.Errorf("UUID %q, PCI bus id %q: want nothing, or what nvidia-smi prints, in lower case", p.UUID, p.PCIBusID)
	}
	again, err := s.d.Properties()
	s.must(err)
	if again != p {
		s.Errorf("described as %+v and then as %+v", p, again)
	}
	free, total, err := s.d.MemInfo()
	s.must(err)
	if free > total || total == 0 {
		s.Fatalf("free %d, total %d", free, total)
	}
}

func (s *suite) allocation() {
	st := s.stream()
	sizes := []uint64{1, 255, 256, 257, 4096, 1 << 20, 3<<20 + 5}
	ptrs := make([]uint64, len(sizes))
	for i, size := range sizes {
		ptrs[i] = s.alloc(size, st)
		if ptrs[i]%core.DefaultAlign != 0 {
			s.Fatalf("%d bytes at %#x: not aligned to %d", size, ptrs[i], core.DefaultAlign)
		}
		for j, other := range sizes[:i] {
			s.wantApart(ptrs[i], size, ptrs[j], other)
		}
		s.must(s.d.MemsetAsync(ptrs[i], byte(i+1), size, st))
	}
	for i, size := range sizes {
		s.wantAll(s.read(ptrs[i], size, st), byte(i+1))
		s.must(s.d.MemFreeAsync(ptrs[i], st))
	}
	_, err := s.d.MemAllocAsync(0, 0, st)
	s.wantCode(err, driver.InvalidValue)
	s.must(s.d.StreamSynchronize(st))
}

func (s *suite) directAllocation() {
	a := s.direct(1000)
	b := s.direct(5 << 20)
	s.wantApart(a, 1000, b, 5<<20)
	if a%core.DefaultAlign != 0 || b%core.DefaultAlign != 0 {
		s.Fatalf("%#x or %#x is not aligned", a, b)
	}
	s.must(s.d.MemsetAsync(a, 7, 1000, s.stream()))
	s.must(s.d.MemFree(a))
	s.must(s.d.MemFree(b))
	_, err := s.d.MemAlloc(0)
	s.wantCode(err, driver.InvalidValue)
}

func (s *suite) mixedFrees() {
	st := s.stream()
	direct := s.direct(1 << 20)
	s.must(s.d.MemFreeAsync(direct, st))
	pooled := s.alloc(1<<20, st)
	s.must(s.d.StreamSynchronize(st))
	s.must(s.d.MemFree(pooled))
}

func (s *suite) invalidPointers() {
	st := s.stream()
	ptr := s.alloc(4096, st)
	s.wantCode(s.d.MemFreeAsync(0xdead00, st), driver.InvalidValue)
	s.wantCode(s.d.MemFree(0xdead00), driver.InvalidValue)
	s.wantCode(s.d.MemsetAsync(0xdead00, 0, 16, st), driver.InvalidValue)
	s.must(s.d.MemFreeAsync(ptr, st))
}

func (s *suite) outOfMemory() {
	st := s.stream()
	for range 2 {
		_, err := s.d.MemAllocAsync(absurd, 0, st)
		if !errors.Is(err, core.ErrOutOfMemory) {
			s.Fatalf("MemAllocAsync: got %v, want out of memory", err)
		}
		_, err = s.d.MemAlloc(absurd)
		if !errors.Is(err, core.ErrOutOfMemory) {
			s.Fatalf("MemAlloc: got %v, want out of memory", err)
		}
	}
	// The device goes on.
	s.must(s.d.MemFreeAsync(s.alloc(1024, st), st))
}

func (s *suite) poolStats(p driver.Pool) driver.PoolStats {
	s.Helper()
	stats, err := s.d.PoolStats(p)
	s.must(err)
	if stats.Used > stats.Reserved || stats.UsedHigh < stats.Used || stats.ReservedHigh < stats.Reserved {
		s.Fatalf("pool statistics contradict each other: %+v", stats)
	}
	return stats
}

func (s *suite) pools() {
	st := s.stream()
	p := s.pool(driver.PoolConfig{ReleaseThreshold: ^uint64(0)})
	if got := s.poolStats(p); got.Used != 0 {
		s.Fatalf("a fresh pool uses %d bytes", got.Used)
	}
	const size = 8 << 20
	ptr, err := s.d.MemAllocAsync(size, p, st)
	s.must(err)
	if got := s.poolStats(p); got.Used != size || got.Reserved < size {
		s.Fatalf("after an allocation of %d bytes: %+v", size, got)
	}
	s.must(s.d.MemFreeAsync(ptr, st))
	if got := s.poolStats(p); got.Used != 0 || got.UsedHigh != size {
		s.Fatalf("after the free was queued: %+v", got)
	}
	s.must(s.d.StreamSynchronize(st))
	if got := s.poolStats(p); got.Reserved < size {
		s.Fatalf("a pool that keeps everything gave memory back: %+v", got)
	}
	s.must(s.d.PoolTrim(p, 0))
	if got := s.poolStats(p); got.Reserved != 0 {
		s.Fatalf("after a trim to 0: %+v", got)
	}
	s.must(s.d.PoolDestroy(p))
}

func (s *suite) poolLimit() {
	st := s.stream()
	p := s.pool(driver.PoolConfig{MaxBytes: 32 << 20})
	ptr, err := s.d.MemAllocAsync(32<<20, p, st)
	s.must(err)
	if _, err := s.d.MemAllocAsync(1<<20, p, st); !errors.Is(err, core.ErrOutOfMemory) {
		s.Fatalf("an allocation beyond the pool's limit: got %v, want out of memory", err)
	}
	s.must(s.d.MemFreeAsync(ptr, st))
	s.must(s.d.StreamSynchronize(st))
	s.must(s.d.PoolDestroy(p))
}

func (s *suite) poolDestroy() {
	st := s.stream()
	p := s.pool(driver.PoolConfig{})
	ptr, err := s.d.MemAllocAsync(4096, p, st)
	s.must(err)
	s.must(s.d.PoolDestroy(p))
	s.must(s.d.MemsetAsync(ptr, 9, 4096, st))
	s.wantAll(s.read(ptr, 4096, st), 9)
	s.must(s.d.MemFreeAsync(ptr, st))
	s.must(s.d.StreamSynchronize(st))
}

func (s *suite) hostMemory() {
	st := s.stream()
	m, err := s.d.HostAlloc(5000)
	s.must(err)
	if len(m.Bytes) != 5000 || m.DevicePtr == 0 {
		s.Fatalf("got %d bytes at %#x", len(m.Bytes), m.DevicePtr)
	}
	dev := s.alloc(5000, st)
	for i := range m.Bytes {
		m.Bytes[i] = byte(i * 7)
	}
	want := bytes.Clone(m.Bytes)
	s.must(s.d.CopyToDeviceAsync(dev, m.Bytes, st))
	s.must(s.d.StreamSynchronize(st))
	clear(m.Bytes)
	s.must(s.d.CopyToHostAsync(m.Bytes, dev, st))
	s.must(s.d.StreamSynchronize(st))
	if !bytes.Equal(m.Bytes, want) {
		s.Fatal("page-locked memory does not hold what was copied through it")
	}
	s.must(s.d.MemFreeAsync(dev, st))
	s.must(s.d.HostFree(m))
	_, err = s.d.HostAlloc(0)
	s.wantCode(err, driver.InvalidValue)
}

func (s *suite) transfers() {
	st := s.stream()
	const n = 1<<20 + 3
	a, b := s.alloc(n, st), s.alloc(n, st)
	src := make([]byte, n)
	for i := range src {
		src[i] = byte(i ^ i>>8)
	}
	s.must(s.d.MemsetAsync(a, 0x5a, n, st))
	s.must(s.d.CopyToDeviceAsync(b, src, st))
	s.must(s.d.CopyOnDeviceAsync(a+1, b+1, n-2, st))
	got := s.read(a, n, st)
	if got[0] != 0x5a || got[n-1] != 0x5a || !bytes.Equal(got[1:n-1], src[1:n-1]) {
		s.Fatal("memset and copies did not leave what they should")
	}
	s.must(s.d.MemFreeAsync(a, st))
	s.must(s.d.MemFreeAsync(b, st))
	s.must(s.d.StreamSynchronize(st))
}

func (s *suite) emptyTransfers() {
	st := s.stream()
	ptr := s.alloc(256, st)
	s.must(s.d.MemsetAsync(ptr, 1, 0, st))
	s.must(s.d.CopyToDeviceAsync(ptr, nil, st))
	s.must(s.d.CopyToHostAsync(nil, ptr, st))
	s.must(s.d.CopyOnDeviceAsync(ptr, ptr, 0, st))
	s.must(s.d.MemFreeAsync(ptr, st))
}
