package bench

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// steps are how long each step of what is measured took, by its name.
type steps map[string][]time.Duration

func (s steps) time(name string, step func()) {
	began := time.Now()
	step()
	s[name] = append(s[name], time.Since(began))
}

// median is in microseconds.
func (s steps) median(name string) float64 {
	of := slices.Sorted(slices.Values(s[name]))
	return float64(of[len(of)/2].Nanoseconds()) / 1e3
}

func (s steps) report(b *testing.B) {
	for name := range s {
		b.ReportMetric(s.median(name), name+"-µs")
	}
}

// pageRow is memory in pages of one handle each that is mapped in a row, with
// the addresses of one page more behind it.
type pageRow struct {
	testing.TB
	steps
	d             driver.Driver
	ptr, page     uint64
	bytes         uint64
	handles       []driver.MemHandle
	lastIsShifted bool
}

func newPageRow(tb testing.TB, d driver.Driver, bytes, page uint64) *pageRow {
	tb.Helper()
	r := &pageRow{TB: tb, steps: steps{}, d: d, page: page, bytes: bytes}
	var err error
	r.ptr, err = d.MemReserve(bytes + page)
	r.must(err)
	return r
}

func (r *pageRow) must(err error) {
	if err != nil {
		r.Helper()
		r.Fatal(err)
	}
}

// grow takes all pages from the device, maps them, and lets the device at them
// by one call.
func (r *pageRow) grow() {
	r.time("grow", func() {
		r.time("create", func() {
			for range r.bytes / r.page {
				h, err := r.d.MemCreate(r.page)
				r.must(err)
				r.handles = append(r.handles, h)
			}
		})
		r.time("map", func() {
			for i, h := range r.handles {
				r.must(r.d.MemMap(r.ptr+uint64(i)*r.page, r.page, h))
			}
		})
		r.time("access", func() { r.must(r.d.MemAccess(r.ptr, r.bytes)) })
	})
}

// remap moves the last page to the addresses behind it, or back.
func (r *pageRow) remap() {
	from, to := r.ptr+r.bytes-r.page, r.ptr+r.bytes
	if r.lastIsShifted {
		from, to = to, from
	}
	r.lastIsShifted = !r.lastIsShifted
	r.time("remap", func() {
		r.must(r.d.MemUnmap(from, r.page))
		r.must(r.d.MemMap(to, r.page, r.handles[len(r.handles)-1]))
		r.must(r.d.MemAccess(to, r.page))
	})
}

// drop gives all pages back, which lie as they were grown.
func (r *pageRow) drop() {
	r.time("unmap", func() { r.must(r.d.MemUnmap(r.ptr, r.bytes)) })
	r.time("release", func() {
		for _, h := range r.handles {
			r.must(r.d.MemRelease(h))
		}
	})
	r.handles = r.handles[:0]
}

func (r *pageRow) close() { r.must(r.d.MemUnreserve(r.ptr, r.bytes+r.page)) }

const (
	// touched is how many bytes a random access reads.
	touched = 128
	// readsInFlight is how many kernels follow each other without a gap.
	readsInFlight = 8
)

// reader reads memory in a row, and at random places.
type reader struct {
	testing.TB
	d                 driver.Driver
	on                driver.Stream
	all, some         driver.Function
	table, out, bytes uint64 // of device memory: a record for each place, and a result
	places            uint32
}

func newReader(tb testing.TB, d driver.Driver, bytes uint64, places uint32) *reader {
	tb.Helper()
	r := &reader{TB: tb, d: d, bytes: bytes, places: places}
	var err error
	r.on, err = d.StreamCreate()
	r.must(err)
	tb.Cleanup(func() { r.must(d.StreamDestroy(r.on)) })
	r.all = r.kernel(testkernels.Image(), testkernels.ReadAll)
	r.some = r.kernel(guardkernels.Image(), driver.GuardVerifyKernel)
	// Results of the comparison: none is written, since nothing differs.
	r.table, err = d.MemAlloc(uint64(places) * driver.GuardRecord)
	r.must(err)
	tb.Cleanup(func() { r.must(d.MemFree(r.table)) })
	r.out, err = d.MemAlloc(uint64(places) * driver.GuardRecord)
	r.must(err)
	tb.Cleanup(func() { r.must(d.MemFree(r.out)) })
	return r
}

func (r *reader) must(err error) {
	if err != nil {
		r.Helper()
		r.Fatal(err)
	}
}

func (r *reader) kernel(image driver.Image, name string) driver.Function {
	r.Helper()
	m, err := r.d.ModuleLoad(image)
	r.must(err)
	r.Cleanup(func() { r.must(r.d.ModuleUnload(m)) })
	f, err := r.d.ModuleFunction(m, name)
	r.must(err)
	return f
}

// aim clears the memory that is to be read, and draws the random places.
func (r *reader) aim(ptr uint64) {
	draw := rand.New(rand.NewPCG(1, 2))
	table := make([]byte, 0, uint64(r.places)*driver.GuardRecord)
	for range r.places {
		at := ptr + draw.Uint64N(r.bytes/touched)*touched
		for _, word := range [...]uint64{at, touched, 0, 0} {
			table = binary.LittleEndian.AppendUint64(table, word)
		}
	}
	r.must(r.d.MemsetAsync(ptr, 0, r.bytes, r.on))
	r.must(r.d.CopyToDeviceAsync(r.table, table, r.on))
	r.must(r.d.StreamSynchronize(r.on))
}

// row is how many gigabytes a second are read in a row, by the better of some grids.
func (r *reader) row(ptr uint64) (best float64) {
	for _, blocks := range []uint32{528, 1056, 2112} {
		best = max(best, r.speed(r.bytes, driver.Launch{Function: r.all, Stream: r.on, Grid: driver.Dim{X: blocks}, Block: driver.Dim{X: 512},
			Args: []driver.Arg{driver.Ptr(ptr), driver.U64(r.bytes / 8), driver.Ptr(r.out)}}))
	}
	return best
}

// random is how many are read at random places.
func (r *reader) random() float64 {
	return r.speed(uint64(r.places)*touched, driver.Launch{Function: r.some, Stream: r.on, Grid: driver.Dim{X: 2112}, Block: driver.Dim{X: 512},
		Args: []driver.Arg{driver.Ptr(r.table), driver.Ptr(r.out), driver.U32(r.places)}})
}

// speed is in gigabytes a second, of kernels that each read so many bytes.
func (r *reader) speed(bytes uint64, l driver.Launch) float64 {
	r.must(r.d.Launch(&l)) // the first use of a kernel takes longer
	r.must(r.d.StreamSynchronize(r.on))
	began := time.Now()
	for range readsInFlight {
		r.must(r.d.Launch(&l))
	}
	r.must(r.d.StreamSynchronize(r.on))
	return readsInFlight * float64(bytes) / float64(time.Since(began).Nanoseconds())
}

func TestTheMeasurementOfPagesRuns(t *testing.T) {
	d, err := sim.Open(sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := testkernels.Register(d); err != nil {
		t.Fatal(err)
	}
	const bytes = 8 << 20
	rd := newReader(t, d, bytes, 100)
	r := newPageRow(t, d, bytes, 2<<20)
	for range 2 {
		r.grow()
		rd.aim(r.ptr)
		if row, random := rd.row(r.ptr), rd.random(); row <= 0 || random <= 0 {
			t.Errorf("%f GB/s in a row, %f at random places", row, random)
		}
		r.remap()
		r.remap()
		r.drop()
	}
	r.close()
	for name, n := range map[string]int{"grow": 2, "create": 2, "map": 2, "access": 2, "remap": 4, "unmap": 2, "release": 2} {
		if len(r.steps[name]) != n || r.median(name) <= 0 {
			t.Errorf("%s took %v", name, r.steps[name])
		}
	}
	if found, b := d.Findings(), d.Books(); len(found) > 0 || b.Handles != 0 || b.Mappings != 0 || b.Reservations != 0 {
		t.Errorf("found %v, left over %+v", found, b)
	}
}
