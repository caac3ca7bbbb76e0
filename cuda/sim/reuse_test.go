package sim

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

func TestOwnStreamReusesAtOnce(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s := p.stream()
		p.hold(s)()
		release := p.hold(s)
		a := p.alloc(1000, s)
		p.alloc(1000, s)
		p.free(a, s)
		if b := p.alloc(900, s); b != a {
			t.Errorf("got %#x, want the block just freed, %#x", b, a)
		}
		release()
		p.wantClean()
	})
}

func TestOtherStreamReusesOnlyWhenOrdered(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		a, b := p.stream(), p.stream()
		release := p.hold(a)
		ptr := p.alloc(4096, a)
		p.free(ptr, a)
		if early := p.alloc(4096, b); early == ptr {
			t.Fatalf("%#x was reused before its free", ptr)
		}
		p.order(a, b)
		if ordered := p.alloc(4096, b); ordered != ptr {
			t.Errorf("got %#x, want %#x, which the stream is ordered after", ordered, ptr)
		}
		release()
		p.wantClean()
	})
}

// The order may come through a third stream, or from the host.
func TestOtherStreamReusesWhenOrderedIndirectly(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		a, b, c := p.stream(), p.stream(), p.stream()
		release := p.hold(a)
		ptr := p.alloc(4096, a)
		p.free(ptr, a)
		p.order(a, b)
		p.order(b, c)
		if got := p.alloc(4096, c); got != ptr {
			t.Errorf("got %#x, want %#x", got, ptr)
		}
		release()
		must(t, d.Synchronize())
		p.free(ptr, c)
		must(t, d.StreamSynchronize(c))
		if got := p.alloc(4096, a); got != ptr {
			t.Errorf("after a synchronisation: got %#x, want %#x", got, ptr)
		}
		p.wantClean()
	})
}

func TestExecutedFreeIsForEveryone(t *testing.T) {
	d := open(t, FreeRunning())
	p := newProgram(t, d)
	a, b := p.stream(), p.stream()
	ptr := p.alloc(4096, a)
	p.free(ptr, a) // nothing is queued: passed at once
	if got := p.alloc(4096, b); got != ptr {
		t.Errorf("got %#x, want %#x", got, ptr)
	}
	p.launch("write", ptr, 4096, b)
	p.wantClean()
}

// Freed neighbours become one, whoever freed them.
func TestNeighboursAreJoined(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		a, b := p.stream(), p.stream()
		var blocks []uint64
		for range 64 {
			blocks = append(blocks, p.alloc(1<<20, a))
		}
		p.order(a, b)
		for i, ptr := range blocks {
			p.free(ptr, []driver.Stream{a, b}[i%2])
		}
		p.order(b, a)
		reserved := d.Books().Reserved
		whole := p.alloc(64<<20, a)
		if got := d.Books().Reserved; got != reserved || whole != blocks[0] {
			t.Errorf("64 MiB at %#x with %d bytes reserved, want %#x with %d", whole, got, blocks[0], reserved)
		}
		p.wantClean()
	})
}

func TestPoolsShareTheCapacity(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s := p.stream()
		other, err := d.PoolCreate(driver.PoolConfig{ReleaseThreshold: ^uint64(0)})
		must(t, err)
		first, err := d.MemAllocAsync(200<<20, other, s)
		must(t, err)
		if _, err := d.MemAllocAsync(100<<20, 0, s); !errors.Is(err, core.ErrOutOfMemory) {
			t.Fatalf("got %v, want out of memory", err)
		}
		if _, err := d.MemAlloc(100 << 20); !errors.Is(err, core.ErrOutOfMemory) {
			t.Fatalf("got %v, want out of memory", err)
		}
		must(t, d.MemFreeAsync(first, s))
		must(t, d.StreamSynchronize(s))
		// The other pool keeps the memory, but not against a request.
		p.alloc(256<<20, s)
		if free, _, err := d.MemInfo(); err != nil || free != 0 {
			t.Errorf("MemInfo: %d free, %v", free, err)
		}
	})
}

func TestReleaseThreshold(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		p := newProgram(t, d)
		s := p.stream()
		pool, err := d.PoolCreate(driver.PoolConfig{ReleaseThreshold: 8 << 20})
		must(t, err)
		ptr, err := d.MemAllocAsync(32<<20, pool, s)
		must(t, err)
		p.free(ptr, s)
		must(t, d.StreamSynchronize(s))
		if stats, err := d.PoolStats(pool); err != nil || stats.Reserved != 8<<20 || stats.ReservedHigh != 32<<20 {
			t.Errorf("%+v, %v; want 8 MiB kept of 32", stats, err)
		}
	})
}

// With a policy disabled the same program gets other memory, until the stream
// that freed it asks or the host has synchronised.
func TestDisabledReusePolicies(t *testing.T) {
	for _, c := range []struct {
		name            string
		disable         driver.ReusePolicy
		ordered, passed bool // whether another stream reuses then
	}{
		{"all enabled", 0, true, true},
		{"follow events disabled", driver.ReuseFollowEvents, false, true},
		{"opportunistic disabled", driver.ReuseOpportunistic, true, false},
		{"internal dependencies disabled", driver.ReuseInternalDependencies, true, true},
		{"all disabled", driver.ReuseAll, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			underEach(t, func(t *testing.T, d *Device) {
				p := newProgram(t, d)
				pool, err := d.PoolCreate(driver.PoolConfig{ReleaseThreshold: ^uint64(0), Disable: c.disable})
				must(t, err)
				reused := func(ptr uint64, by driver.Stream) bool {
					t.Helper()
					got, err := d.MemAllocAsync(4096, pool, by)
					must(t, err)
					return got == ptr
				}
				a, b, idle := p.stream(), p.stream(), p.stream()
				release := p.hold(a)
				ptr, err := d.MemAllocAsync(4096, pool, a)
				must(t, err)
				p.free(ptr, a)
				p.order(a, b)
				if got := reused(ptr, b); got != c.ordered {
					t.Errorf("a stream ordered after the free reuses it: %v, want %v", got, c.ordered)
				}
				release()
				must(t, d.Synchronize())

				ptr, err = d.MemAllocAsync(4096, pool, a)
				must(t, err)
				p.free(ptr, a)
				for i, s := 0, d.streams.get(a); s.done.Load() < s.seq && i < 1000; i++ {
					must(t, d.MemsetAsync(ptr, 0, 0, idle)) // a seeded device moves on
				}
				if got := reused(ptr, b); got != c.passed {
					t.Errorf("a stream reuses memory whose free happens to be done: %v, want %v", got, c.passed)
				}
				must(t, d.Synchronize())
				if c.passed {
					return
				}
				if !reused(ptr, b) {
					t.Error("memory is not reused after the host synchronised with its free")
				}
			})
		})
	}
}

func TestUnknownReusePolicyIsRefused(t *testing.T) {
	_, err := open(t, FreeRunning()).PoolCreate(driver.PoolConfig{Disable: 1 << 7})
	var e *core.DriverError
	if !errors.As(err, &e) || e.Code != driver.InvalidValue {
		t.Fatalf("got %v", err)
	}
}
