package findings

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/gpucore"
)

// Enqueued is the newest kernels that were enqueued, so that a dump of the GPU, which knows kernels and their parameters, tells
// the launch. It is safe for concurrent use.
type Enqueued struct {
	mu   sync.Mutex
	ring [4096]enqueued
	n    uint64
}

// enqueued is one kernel.
type enqueued struct {
	kernel      string
	grid, block driver.Dim
	args        [16]driver.Arg // the first few
	count       int            // of all
	by          cuda.Enqueuing
	known       bool // by is
}

// Note keeps a kernel, which the calling goroutine has enqueued on a stream of the pool.
func (q *Enqueued) Note(streams *cuda.StreamPool, l *driver.Launch, kernel string) {
	by, known := streams.Enqueuing(l.Stream)
	q.mu.Lock()
	defer q.mu.Unlock()
	e := &q.ring[q.n%uint64(len(q.ring))]
	q.n++
	e.kernel, e.grid, e.block, e.by, e.known = kernel, l.Grid, l.Block, by, known
	e.count = len(l.Args)
	copy(e.args[:], l.Args)
}

// origin is what may have enqueued a kernel that faulted.
type origin struct {
	launches []core.UseRecord // in flight
	outside  bool             // of all launches
	// kernel is the one that it was, if there is one only.
	kernel *enqueued
}

// of says what may have enqueued the kernel of a fault, by the grid if that is known. sure is false if something else may have.
func (q *Enqueued) of(kernel string, grid *gpucore.Grid) (o origin, sure bool) {
	if q == nil || kernel == "" {
		return o, false
	}
	q.mu.Lock()
	var fit []enqueued
	for i := range min(q.n, uint64(len(q.ring))) {
		if e := &q.ring[(q.n-1-i)%uint64(len(q.ring))]; e.kernel == kernel && (grid == nil || e.fits(grid)) {
			fit = append(fit, *e)
		}
	}
	q.mu.Unlock()
	left := 0
	for i := range fit {
		if !fit[i].known {
			return origin{}, false
		}
		u, done, known := fit[i].by.Launch()
		if done {
			continue
		}
		if left++; left == 1 {
			o.kernel = &fit[i]
		} else {
			o.kernel = nil
		}
		switch {
		case fit[i].by.Outside:
			o.outside = true
		case !known:
			return origin{}, false
		case !slices.ContainsFunc(o.launches, func(of core.UseRecord) bool { return of.LaunchID == u.LaunchID }):
			o.launches = append(o.launches, u)
		}
	}
	return o, o.outside || len(o.launches) > 0
}

// words are the arguments that may be addresses.
func (e *enqueued) words() (ptrs []uint64) {
	if e == nil {
		return nil
	}
	for _, a := range e.args[:min(e.count, len(e.args))] {
		ptrs = append(ptrs, a.Bits)
	}
	return ptrs
}

// fits reports whether the grid may be this kernel's. The driver passes each argument at the next multiple of its size.
func (e *enqueued) fits(grid *gpucore.Grid) bool {
	if !same(grid.Blocks, e.grid) || !same(grid.Threads, e.block) {
		return false
	}
	at := 0
	for _, a := range e.args[:min(e.count, len(e.args))] {
		size := max(1, int(a.Size))
		at = (at + size - 1) / size * size
		var bits [8]byte
		binary.LittleEndian.PutUint64(bits[:], a.Bits)
		if at+size > len(grid.Params) || string(grid.Params[at:at+size]) != string(bits[:size]) {
			return false
		}
		at += size
	}
	return true
}

func same(counts [3]uint32, d driver.Dim) bool {
	return counts == [3]uint32{max(d.X, 1), max(d.Y, 1), max(d.Z, 1)}
}
