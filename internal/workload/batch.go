package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Batch is the work in a form that can be timed: tables and what the CPU
// makes of them are computed before, results are compared behind, and all of
// it lies in page-locked memory, so that copies do not stop the host. It is
// not safe for concurrent use, and must be closed.
type Batch struct {
	w      *Workload
	want   expected
	memory []driver.HostMemory
	lanes  []*lane
}

// lane is what one goroutine works with.
type lane struct {
	x, y   *cuda.Lease
	tables tables
	got    got
	done   bool // there are results that were not compared
}

// Batch prepares w's goroutines. The workload is not to be run besides.
func (w *Workload) Batch(ctx context.Context) (*Batch, error) {
	t := newTables(rand.New(rand.NewPCG(w.cfg.Seed, 0)), w.cfg.Rows)
	b := &Batch{w: w, want: t.expect()}
	for range w.cfg.Goroutines {
		if err := b.addLane(ctx, t); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	return b, nil
}

func (b *Batch) addLane(ctx context.Context, t tables) (err error) {
	l := &lane{}
	if l.x, err = b.w.env.Streams.Acquire(ctx, "workload.x"); err != nil {
		return err
	}
	b.lanes = append(b.lanes, l)
	if l.y, err = b.w.env.Streams.Acquire(ctx, "workload.y"); err != nil {
		return err
	}
	alloc := func(n int) []uint32 {
		words, failure := b.locked(n)
		err = errors.Join(err, failure)
		return words
	}
	locked := func(from []uint32) []uint32 {
		words := alloc(len(from))
		copy(words, from)
		return words
	}
	l.tables = tables{locked(t.leftKeys), locked(t.leftValues), locked(t.rightKeys), locked(t.rightValues)}
	l.got = room(b.w.cfg.Rows, alloc)
	return err
}

// locked is page-locked memory for n words, until Close.
func (b *Batch) locked(n int) ([]uint32, error) {
	mem, err := b.w.env.Driver.HostAlloc(4 * uint64(n))
	if err != nil {
		return nil, err
	}
	b.memory = append(b.memory, mem)
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(mem.Bytes))), n), nil
}

// Run does n sorts and joins on each goroutine's streams and waits for each.
// Any refusal is an error.
func (b *Batch) Run(ctx context.Context, n int) error {
	errs := make([]error, len(b.lanes))
	var group sync.WaitGroup
	for i, l := range b.lanes {
		group.Go(func() {
			for range n {
				if errs[i] = b.once(ctx, l); errs[i] != nil {
					return
				}
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func (b *Batch) once(ctx context.Context, l *lane) error {
	it := b.w.newIteration(l.x, l.y)
	var r results
	err := it.compute(ctx, l.tables, &r)
	if err == nil {
		err = it.fetch(ctx, &r, l.got)
		l.done = true
	}
	return errors.Join(err, it.freeAll(ctx))
}

// Check compares the last results of each goroutine to the CPU's, and wipes
// them, so that those of one run do not pass for another's.
func (b *Batch) Check() error {
	before := b.w.Result()
	for _, l := range b.lanes {
		if l.done {
			b.w.compare(l.got, b.want)
			l.wipe()
		}
	}
	after := b.w.Result()
	if wrong := after.Wrong - before.Wrong; wrong > 0 || after.Checked == before.Checked {
		return fmt.Errorf("%d of %d results are wrong", wrong, after.Checked-before.Checked)
	}
	return nil
}

func (l *lane) wipe() {
	for _, col := range [][]uint32{l.got.keys, l.got.values, l.got.joined, l.got.kept, l.got.survivors} {
		clear(col)
	}
	l.done = false
}

// Close gives leases, memory and kernels back, when the device is done with
// them. It blocks for that.
func (b *Batch) Close() error {
	errs := []error{b.w.env.Driver.Synchronize()}
	for _, l := range b.lanes {
		for _, lease := range []*cuda.Lease{l.x, l.y} {
			if lease != nil {
				errs = append(errs, lease.Release())
			}
		}
	}
	for _, mem := range b.memory {
		errs = append(errs, b.w.env.Driver.HostFree(mem))
	}
	b.lanes, b.memory = nil, nil
	return errors.Join(append(errs, b.w.module.Unload())...)
}
