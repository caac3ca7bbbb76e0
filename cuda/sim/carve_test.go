package sim

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// carver is a program that cuts blocks out of mapped pages.
type carver struct{ book }

// newCarver maps four places for the program.
func newCarver(t *testing.T, d *Device) carver { t.Helper(); return carver{newBook(t, d, 6, 4)} }

// take tells of a block of so many bytes, so far behind the first page, and returns it.
func (c carver) take(offset, bytes uint64, s driver.Stream) uint64 {
	c.d.BlockBegins(c.at+offset, bytes, s)
	return c.at + offset
}

func (c carver) give(ptr uint64, s driver.Stream) { c.d.BlockEnds(ptr, s) }

// carvedBugs are programs with one bug each, which the oracle sees in a block that was cut
// out of a mapping as it does in one of the driver's.
var carvedBugs = []struct {
	name string
	kind Kind
	run  func(c carver, s, other driver.Stream)
}{
	{"use after the free", UseAfterFree, func(c carver, s, _ driver.Stream) {
		b := c.take(0, 4096, s)
		c.give(b, s)
		c.launch("write", b, 8, s)
	}},
	{"copy after the free", UseAfterFree, func(c carver, s, _ driver.Stream) {
		b := c.take(4096, 4096, s)
		c.give(b, s)
		must(c, c.d.MemsetAsync(b+8, 1, 8, s))
	}},
	{"undeclared use after the free", UseAfterFree, func(c carver, s, _ driver.Stream) {
		b := c.take(0, 4096, s)
		c.give(b, s)
		c.launch("wild", b, 1, s)
	}},
	{"free that does not wait for a use", FreeRace, func(c carver, s, other driver.Stream) {
		b := c.take(0, 4096, s)
		c.order(s, other)
		c.launch("write", b, 8, other)
		c.give(b, s)
	}},
	{"use that the allocation does not come before", UseBeforeAlloc, func(c carver, s, other driver.Stream) {
		c.launch("write", c.take(0, 4096, s), 8, other)
	}},
	{"race", Race, func(c carver, s, other driver.Stream) {
		b := c.take(0, 2*Granule, s)
		c.order(s, other)
		c.launch("write", b+Granule-8, 16, s)
		c.launch("write", b+Granule, 8, other)
	}},
	{"overrun into a neighbour", OutOfBounds, func(c carver, s, _ driver.Stream) {
		c.take(4096, 4096, s)
		c.launch("write", c.take(0, 4096, s), 4104, s)
	}},
	{"overrun into slack", OutOfBounds, func(c carver, s, _ driver.Stream) {
		c.launch("write", c.take(0, 100, s), 104, s)
	}},
	{"underrun into what was freed", OutOfBounds, func(c carver, s, _ driver.Stream) {
		b := c.take(4096, 4096, s)
		c.give(c.take(0, 4096, s), s)
		c.launch("write", b-8, 16, s)
	}},
	{"overrun of a page that nobody has cut", OutOfBounds, func(c carver, s, _ driver.Stream) {
		c.launch("write", c.take(Granule-256, 256, s), 264, s)
	}},
	{"use of what was never a block's", OutOfBounds, func(c carver, s, _ driver.Stream) {
		c.take(0, 256, s)
		c.launch("write", c.at+3*Granule, 8, s)
	}},
	{"memory that is taken before its free", FreeRace, func(c carver, s, other driver.Stream) {
		c.give(c.take(0, 4096, s), s)
		c.take(2048, 256, other)
	}},
	{"memory that is taken before the end of an older block in part of it", FreeRace, func(c carver, s, other driver.Stream) {
		c.give(c.take(0, 4096, s), s)
		c.order(s, other)
		c.give(c.take(1024, 256, other), other)
		third := c.stream()
		c.order(other, third)
		c.give(c.take(0, 256, third), third) // in order: other has waited for s
		c.take(512, 256, c.stream())
	}},
	{"memory that two have", FreeRace, func(c carver, s, _ driver.Stream) {
		c.take(0, 4096, s)
		c.take(0, 256, s)
	}},
	{"page that is unmapped below a block", FreeRace, func(c carver, s, _ driver.Stream) {
		c.take(0, 2*Granule, s)
		c.unmap(1, 1)
	}},
	{"page that is unmapped before the device has come to the free", FreeRace, func(c carver, s, _ driver.Stream) {
		c.give(c.take(0, 4096, s), s)
		c.unmap(0, 1)
	}},
}

func TestBlocksThatAProgramCutsOutOfAMappingAreJudged(t *testing.T) {
	for _, bug := range carvedBugs {
		t.Run(bug.name, func(t *testing.T) {
			underEach(t, func(t *testing.T, d *Device) {
				c := newCarver(t, d)
				bug.run(c, c.stream(), c.stream())
				c.wantFinding(bug.kind)
			})
		})
	}
}

// What a pool does: memory goes from stream to stream, behind waits or when the device has
// come to it, is split and merged, and moves with its page.
func TestBlocksThatAreTakenInOrderAreNotAccused(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		c := newCarver(t, d)
		s, other := c.stream(), c.stream()
		use := func(offset, bytes uint64, on driver.Stream) {
			b := c.take(offset, bytes, on)
			c.launch("write", b, bytes, on)
			c.give(b, on)
		}
		for _, n := range []uint64{4096, 100, 3 * Granule, 1024, 4096, 256} {
			use(512, n, s)
			use(512+1024, n, s)
		}
		c.order(s, other)
		use(0, 4*Granule, other)
		c.order(other, s)
		use(Granule/2, Granule, s)
		must(t, d.StreamSynchronize(s)) // the host knows
		use(0, 2*Granule, c.stream())

		must(t, d.Synchronize())
		c.unmap(0, 2)
		c.move(0, 4)
		c.move(1, 0)
		use(4*Granule, Granule, s)
		use(0, Granule, other)
		c.wantClean()
	})
}

// What the device is told enqueues nothing, so that no schedule changes by it.
func TestTellingOfBlocksIsNoCallOfTheDriver(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		c := newCarver(t, d)
		s := c.stream()
		before := d.Calls()
		c.give(c.take(0, 4096, s), s)
		for name, n := range d.Calls() {
			if n != before[name] {
				t.Errorf("%s was called", name)
			}
		}
		if done, err := d.StreamQuery(s); err != nil || !done {
			t.Errorf("something is queued: %v, %v", done, err)
		}
		c.give(c.at+256, s) // nobody's: nothing happens
		c.d.BlockBegins(c.place(5), 4096, s)
		c.wantClean()
		must(t, d.Close())
		c.give(c.take(0, 4096, s), s)
	})
}

func TestAnAddressOfAGoneBlockIsNamedByIt(t *testing.T) {
	underEach(t, func(t *testing.T, d *Device) {
		c := newCarver(t, d)
		s := c.stream()
		b := c.take(4096, 1024, s)
		c.give(b, s)
		must(t, d.StreamSynchronize(s))
		c.unmap(0, 1)
		c.launch("wild", b+8, 1, s)
		wantCode(t, d.StreamSynchronize(s), driver.IllegalAddress)
		if all := d.Findings(); len(all) != 1 || all[0].Kind != IllegalAddress || all[0].BlockPtr != b || all[0].Other.Op != "free" {
			t.Errorf("found %v", all)
		}
	})
}
