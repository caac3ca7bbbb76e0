package bench

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/workload"
)

// column is device memory of a joiner.
type column interface{ Arg() driver.Arg }

// joiner is a way to run the sort and join: through the runtime, or on the
// driver with fences placed by hand.
type joiner interface {
	alloc(stream, words int) column
	upload(stream int, dst column, src []uint32)
	// launch enqueues a kernel; order says, for those who fence by hand, that
	// it needs what the other stream did.
	launch(stream int, kernel string, grid cuda.Grid, in, out []column, args ...driver.Arg)
	order(from, to int)
	download(stream int, dst []uint32, src column)
	finish()
}

// join is the workload's program: a radix sort whose steps alternate between
// two streams, a hash table built and probed, and the joined column brought
// back. Buffers are page-locked, so that copies do not stop the host.
type join struct {
	rows                   int
	keys, values, joined   []uint32
	rightKeys, rightValues []uint32
}

const (
	digits    = 256
	sliceRows = 2048
)

func slicesOf(n int) int { return min((n+sliceRows-1)/sliceRows, 64) }

func (p *join) run(j joiner) {
	n, m := p.rows, p.rows/2
	sliced, whole := cuda.Blocks1D(slicesOf(n)*digits, digits), func(n int) cuda.Grid { return cuda.Blocks1D(n, digits) }
	counters := digits * slicesOf(n)
	keys, values, toKeys, toValues, counts := j.alloc(0, n), j.alloc(0, n), j.alloc(0, n), j.alloc(0, n), j.alloc(0, counters)
	j.order(0, 1) // the allocations
	j.upload(1, keys, p.keys)
	j.upload(1, values, p.values)
	for pass := range 4 {
		here, there := pass%2, 1-pass%2
		shift := driver.U32(uint32(8 * pass))
		j.order(there, here)
		j.launch(here, "fencepost_radix_histogram", sliced, list(keys), list(counts), keys.Arg(), counts.Arg(), driver.U32(uint32(n)), shift)
		j.order(here, there)
		j.launch(there, "fencepost_radix_scan", whole(digits), nil, list(counts), counts.Arg(), driver.U32(uint32(counters)))
		j.order(there, here)
		j.launch(here, "fencepost_radix_scatter", sliced, list(keys, values, counts), list(toKeys, toValues),
			keys.Arg(), values.Arg(), toKeys.Arg(), toValues.Arg(), counts.Arg(), driver.U32(uint32(n)), shift)
		keys, values, toKeys, toValues = toKeys, toValues, keys, values
	}
	slots := 1
	for slots < 2*m {
		slots *= 2
	}
	rightKeys, rightValues, table, joined := j.alloc(1, m), j.alloc(1, m), j.alloc(1, 2*slots), j.alloc(1, n)
	mask := driver.U32(uint32(slots - 1))
	j.order(1, 0)
	j.upload(0, rightKeys, p.rightKeys)
	j.upload(0, rightValues, p.rightValues)
	j.launch(0, "fencepost_join_clear", whole(2*slots), nil, list(table), table.Arg(), driver.U32(uint32(2*slots)))
	j.order(0, 1)
	j.launch(1, "fencepost_join_build", whole(m), list(rightKeys, rightValues), list(table), rightKeys.Arg(), rightValues.Arg(), table.Arg(), driver.U32(uint32(m)), mask)
	j.order(1, 0)
	j.launch(0, "fencepost_join_probe", whole(n), list(keys, table), list(joined), keys.Arg(), table.Arg(), joined.Arg(), driver.U32(uint32(n)), mask)
	j.order(0, 1)
	j.download(1, p.joined, joined)
	j.order(1, 0)
	j.finish()
}

func list(cols ...column) []column { return cols }

// BenchmarkGPUJoin is one sort and join, enqueued and done: with fences placed by hand, and through
// the bare backend and services, of whose launches none are timed (one in -1), one in 100, and all.
func BenchmarkGPUJoin(b *testing.B) {
	for _, rows := range []int{1 << 12, 1 << 16, 1 << 20} {
		g := openGPU(b)
		p := newJoin(b, g, rows)
		module := made(b, func() (*cuda.Module, error) { return cuda.LoadModule(g, workload.Image()) })
		kernels, functions := map[string]*cuda.Kernel{}, map[string]driver.Function{}
		handle := made(b, func() (driver.Module, error) { return g.ModuleLoad(workload.Image()) })
		for _, name := range []string{"fencepost_radix_histogram", "fencepost_radix_scan", "fencepost_radix_scatter", "fencepost_join_clear", "fencepost_join_build", "fencepost_join_probe"} {
			kernels[name] = made(b, func() (*cuda.Kernel, error) { return module.Kernel(name) })
			functions[name] = made(b, func() (driver.Function, error) { return g.ModuleFunction(handle, name) })
		}
		var sums []uint64
		measure := func(b *testing.B, j joiner) {
			for b.Loop() {
				p.run(j)
				check(b, g.Synchronize())
			}
			sums = append(sums, p.sum())
		}
		b.Run(fmt.Sprintf("rows=%d/c", rows), func(b *testing.B) { measure(b, &byHand{gpu: g, b: b, functions: functions}) })
		through := func(name string, open func(*testing.B) *stack) {
			b.Run(fmt.Sprintf("rows=%d/%s", rows, name), func(b *testing.B) {
				s := open(b)
				memory := made(b, func() (*cuda.MemoryManager, error) { return cuda.NewMemoryManager(g, s.streams, s.runtime) })
				measure(b, &fenced{b: b, runtime: s.runtime, memory: memory, streams: [2]*cuda.Lease{s.lease(b), s.lease(b)}, kernels: kernels})
			})
		}
		for _, c := range ways {
			through(c.name, func(b *testing.B) *stack { return c.open(b, g, fencepost.Async) })
		}
		for _, oneIn := range []int{-1, 100, 1} {
			through(fmt.Sprintf("service, one in %d timed", oneIn),
				func(b *testing.B) *stack { return service(b, g, over(fencepost.Async), timed(oneIn)) })
		}
		for _, sum := range sums {
			if sum != sums[0] {
				b.Fatalf("the ways joined differently: %v", sums)
			}
		}
	}
}

// newJoin makes the tables in page-locked memory, so that copies are
// asynchronous.
func newJoin(b *testing.B, g *gpu, rows int) *join {
	host := func(n int) []uint32 {
		mem := made(b, func() (driver.HostMemory, error) { return g.HostAlloc(4 * uint64(n)) })
		return unsafe.Slice((*uint32)(unsafe.Pointer(&mem.Bytes[0])), n)
	}
	p := &join{rows: rows, keys: host(rows), values: host(rows), joined: host(rows), rightKeys: host(rows / 2), rightValues: host(rows / 2)}
	for i := range p.rightKeys {
		p.rightKeys[i], p.rightValues[i] = uint32(2*i)*2654435761|1, uint32(i)
	}
	for i := range p.keys {
		p.keys[i], p.values[i] = uint32(i)*2246822519, uint32(i)
		if i%2 == 0 {
			p.keys[i] = p.rightKeys[i/2]
		}
	}
	return p
}

func (p *join) sum() uint64 {
	var sum uint64
	for i, v := range p.joined {
		sum = sum*31 + uint64(v) + uint64(i)
	}
	return sum
}
