package workload

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/examples/service/kernels"
)

// below is what the filter asks of a partner's value: about half pass.
const below = 1 << 31

type column = cuda.Slice[uint32]

// iteration is one sort and join under way on two streams.
type iteration struct {
	w       *Workload
	streams [2]*cuda.Lease
	owned   []*column
	// writers is which stream wrote each block last, kept here and not asked
	// of the runtime, so that the share of cross-stream launches is counted
	// independently of what is being shown.
	writers map[core.Generation]core.StreamID
	uses    []core.Use
}

// results are the columns that are compared to the CPU's.
type results struct {
	keys, values, joined *column
	// kept holds the filter's survivors at the beginning of each slice,
	// survivors their numbers.
	kept, survivors *column
}

func (it *iteration) run(ctx context.Context, t tables) error {
	var r results
	if err := it.compute(ctx, t, &r); err != nil {
		return err
	}
	return it.check(ctx, t, &r)
}

// compute enqueues everything but the way back.
func (it *iteration) compute(ctx context.Context, t tables, r *results) error {
	for _, step := range []func(context.Context, tables, *results) error{it.sort, it.join, it.filter} {
		if err := step(ctx, t, r); err != nil {
			return err
		}
	}
	return nil
}

// sort uploads the left table and radix-sorts it. Each pass's histogram and
// scatter run on one stream and its scan on the other, and the roles change
// from pass to pass, so every launch reads what the other stream wrote.
func (it *iteration) sort(ctx context.Context, t tables, r *results) error {
	n := len(t.leftKeys)
	counters := kernels.Counters(n)
	cols, err := it.alloc(ctx, 0, "sort", n, n, n, n, counters)
	if err != nil {
		return err
	}
	keys, values, otherKeys, otherValues, counts := cols[0], cols[1], cols[2], cols[3], cols[4]
	if err := errors.Join(it.upload(ctx, 1, keys, t.leftKeys), it.upload(ctx, 1, values, t.leftValues)); err != nil {
		return err
	}
	for pass := range 32 / kernels.DigitBits {
		here, there := pass%2, 1-pass%2
		shift := driver.U32(uint32(pass * kernels.DigitBits))
		k := it.w.kernels
		err := it.launch(ctx, here, k.Histogram, kernels.Sliced(n), it.reads(keys), it.writes(counts), keys.Arg(), counts.Arg(), driver.U32(uint32(n)), shift)
		if err == nil {
			err = it.launch(ctx, there, k.Scan, kernels.OneBlock(), nil, it.readWrites(counts), counts.Arg(), driver.U32(uint32(counters)))
		}
		if err == nil {
			err = it.launch(ctx, here, k.Scatter, kernels.Sliced(n), it.reads(keys, values, counts), it.writes(otherKeys, otherValues),
				keys.Arg(), values.Arg(), otherKeys.Arg(), otherValues.Arg(), counts.Arg(), driver.U32(uint32(n)), shift)
		}
		if err != nil {
			return err
		}
		keys, values, otherKeys, otherValues = otherKeys, otherValues, keys, values
	}
	r.keys, r.values = keys, values
	return nil
}

// join builds a hash table of the right side and probes it with the sorted
// keys.
func (it *iteration) join(ctx context.Context, t tables, r *results) error {
	n, m := len(t.leftKeys), len(t.rightKeys)
	words := kernels.SlotWords * kernels.Slots(m)
	cols, err := it.alloc(ctx, 1, "join", m, m, words, n)
	if err != nil {
		return err
	}
	rightKeys, rightValues, table, joined := cols[0], cols[1], cols[2], cols[3]
	k := it.w.kernels
	mask := driver.U32(uint32(kernels.Slots(m) - 1))
	err = errors.Join(it.upload(ctx, 0, rightKeys, t.rightKeys), it.upload(ctx, 0, rightValues, t.rightValues))
	if err == nil {
		err = it.launch(ctx, 0, k.Clear, kernels.Rows(words), nil, it.writes(table), table.Arg(), driver.U32(uint32(words)))
	}
	if err == nil {
		err = it.launch(ctx, 1, k.Build, kernels.Rows(m), it.reads(rightKeys, rightValues), it.readWrites(table),
			rightKeys.Arg(), rightValues.Arg(), table.Arg(), driver.U32(uint32(m)), mask)
	}
	if err == nil {
		err = it.launch(ctx, 0, k.Probe, kernels.Rows(n), it.reads(r.keys, table), it.writes(joined),
			r.keys.Arg(), table.Arg(), joined.Arg(), driver.U32(uint32(n)), mask)
	}
	r.joined = joined
	return err
}

// filter keeps the left values of the rows whose partner's value is small.
func (it *iteration) filter(ctx context.Context, t tables, r *results) error {
	n := len(t.leftKeys)
	cols, err := it.alloc(ctx, 0, "filter", n, kernels.Slices(n))
	if err != nil {
		return err
	}
	r.kept, r.survivors = cols[0], cols[1]
	return it.launch(ctx, 1, it.w.kernels.Filter, kernels.Sliced(n), it.reads(r.values, r.joined), it.writes(r.kept, r.survivors),
		r.values.Arg(), r.joined.Arg(), r.kept.Arg(), r.survivors.Arg(), driver.U32(uint32(n)), driver.U32(below))
}

// alloc allocates columns of the given lengths on one of the streams.
func (it *iteration) alloc(ctx context.Context, stream int, tag core.Tag, lengths ...int) ([]*column, error) {
	var cols []*column
	for _, n := range lengths {
		col, err := cuda.Alloc[uint32](ctx, it.w.env.Memory, n, cuda.AllocOptions{Stream: it.streams[stream].ID(), Tag: "workload." + tag})
		if err != nil {
			return nil, err
		}
		it.owned = append(it.owned, col)
		cols = append(cols, col)
	}
	return cols, nil
}

// freeAll gives back everything; it may be called again.
func (it *iteration) freeAll(ctx context.Context) error {
	var errs []error
	for _, col := range it.owned {
		errs = append(errs, col.Free(ctx))
	}
	it.owned = nil
	return errors.Join(errs...)
}

func uses(access core.Access, cols []*column) []core.Use {
	list := make([]core.Use, 0, len(cols)+1)
	for _, col := range cols {
		list = append(list, col.Use(access))
	}
	return list
}

func (it *iteration) reads(cols ...*column) []core.Use      { return uses(core.Read, cols) }
func (it *iteration) writes(cols ...*column) []core.Use     { return uses(core.Write, cols) }
func (it *iteration) readWrites(cols ...*column) []core.Use { return uses(core.ReadWrite, cols) }

func (it *iteration) launch(ctx context.Context, stream int, k *cuda.Kernel, grid cuda.Grid, in, out []core.Use, args ...driver.Arg) error {
	it.uses = append(append(it.uses[:0], in...), out...)
	it.count(it.streams[stream].ID(), it.uses)
	return k.Launch(ctx, it.w.env.Runtime, it.streams[stream], grid, it.uses, args...)
}

func (it *iteration) upload(ctx context.Context, stream int, dst *column, src []uint32) error {
	it.count(it.streams[stream].ID(), it.writes(dst))
	return cuda.CopyToDevice(ctx, dst, it.streams[stream].ID(), src)
}

// download copies on the stream that did not write src last.
func (it *iteration) download(ctx context.Context, dst []uint32, src *column) error {
	stream := it.streams[0].ID()
	if it.writers[src.BlockID().Generation] == stream {
		stream = it.streams[1].ID()
	}
	it.count(stream, it.reads(src))
	return cuda.CopyToHost(ctx, dst, src, stream)
}

// count notes a launch and whether it uses what another stream wrote last.
func (it *iteration) count(stream core.StreamID, uses []core.Use) {
	it.w.launches.Add(1)
	cross := false
	for _, u := range uses {
		writer, written := it.writers[u.Block.Generation]
		cross = cross || written && writer != stream
	}
	if cross {
		it.w.crossStream.Add(1)
	}
	for _, u := range uses {
		if u.Access.Writes() {
			it.writers[u.Block.Generation] = stream
		}
	}
}
