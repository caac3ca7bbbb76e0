package workload

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// kernels are the device code of the workload.
type kernels struct {
	histogram, scan, scatter, clear, build, probe, filter *cuda.Kernel
}

// ClearKernel is the name of the kernel that empties a table: clear(table, n)
// writes n words.
const ClearKernel = "fencepost_join_clear"

// The names of the kernels, the same in every driver's code.
const (
	histogramKernel = "fencepost_radix_histogram"
	scanKernel      = "fencepost_radix_scan"
	scatterKernel   = "fencepost_radix_scatter"
	buildKernel     = "fencepost_join_build"
	probeKernel     = "fencepost_join_probe"
	filterKernel    = "fencepost_filter"
)

func (k *kernels) load(m *cuda.Module) error {
	var errs []error
	get := func(name string) *cuda.Kernel {
		kernel, err := m.Kernel(name)
		errs = append(errs, err)
		return kernel
	}
	k.histogram, k.scan, k.scatter = get(histogramKernel), get(scanKernel), get(scatterKernel)
	k.clear, k.build, k.probe, k.filter = get(ClearKernel), get(buildKernel), get(probeKernel), get(filterKernel)
	return errors.Join(errs...)
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
	if it.writers[src.Tracking().Block.Generation] == stream {
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
