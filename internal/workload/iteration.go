package workload

import (
	"context"
	"errors"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

const (
	digitBits = 8
	digits    = 1 << digitBits
	passes    = 32 / digitBits
	slotWords = 2
)

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

func (it *iteration) run(ctx context.Context, t tables) error {
	keys, values, err := it.sort(ctx, t)
	if err != nil {
		return err
	}
	joined, err := it.join(ctx, t, keys)
	if err != nil {
		return err
	}
	return it.check(ctx, t, keys, values, joined)
}

// sort uploads the left table and radix-sorts it. Each pass's histogram and
// scatter run on one stream and its scan on the other, and the roles change
// from pass to pass, so every launch reads what the other stream wrote.
func (it *iteration) sort(ctx context.Context, t tables) (keys, values *column, err error) {
	n := len(t.leftKeys)
	cols, err := it.alloc(ctx, 0, "sort", n, n, n, n, digits)
	if err != nil {
		return nil, nil, err
	}
	keys, values, otherKeys, otherValues, counts := cols[0], cols[1], cols[2], cols[3], cols[4]
	if err := errors.Join(it.upload(ctx, 1, keys, t.leftKeys), it.upload(ctx, 1, values, t.leftValues)); err != nil {
		return nil, nil, err
	}
	for pass := range passes {
		here, there := pass%2, 1-pass%2
		shift := driver.U32(uint32(pass * digitBits))
		k := &it.w.kernels
		err := it.launch(ctx, here, k.histogram, n, it.reads(keys), it.writes(counts), keys.Arg(), counts.Arg(), driver.U32(uint32(n)), shift)
		if err == nil {
			err = it.launch(ctx, there, k.scan, digits, nil, it.readWrites(counts), counts.Arg(), driver.U32(digits))
		}
		if err == nil {
			err = it.launch(ctx, here, k.scatter, n, it.reads(keys, values), append(it.writes(otherKeys, otherValues), it.readWrites(counts)...),
				keys.Arg(), values.Arg(), otherKeys.Arg(), otherValues.Arg(), counts.Arg(), driver.U32(uint32(n)), shift)
		}
		if err != nil {
			return nil, nil, err
		}
		keys, values, otherKeys, otherValues = otherKeys, otherValues, keys, values
	}
	return keys, values, nil
}

// join builds a hash table of the right side and probes it with the sorted
// keys.
func (it *iteration) join(ctx context.Context, t tables, keys *column) (*column, error) {
	n, m := len(t.leftKeys), len(t.rightKeys)
	slots := 1
	for slots < 2*m {
		slots *= 2
	}
	cols, err := it.alloc(ctx, 1, "join", m, m, slots*slotWords, n)
	if err != nil {
		return nil, err
	}
	rightKeys, rightValues, table, joined := cols[0], cols[1], cols[2], cols[3]
	k := &it.w.kernels
	mask := driver.U32(uint32(slots - 1))
	err = errors.Join(it.upload(ctx, 0, rightKeys, t.rightKeys), it.upload(ctx, 0, rightValues, t.rightValues))
	if err == nil {
		err = it.launch(ctx, 0, k.clear, slots*slotWords, nil, it.writes(table), table.Arg(), driver.U32(uint32(slots*slotWords)))
	}
	if err == nil {
		err = it.launch(ctx, 1, k.build, m, it.reads(rightKeys, rightValues), it.readWrites(table),
			rightKeys.Arg(), rightValues.Arg(), table.Arg(), driver.U32(uint32(m)), mask)
	}
	if err == nil {
		err = it.launch(ctx, 0, k.probe, n, it.reads(keys, table), it.writes(joined),
			keys.Arg(), table.Arg(), joined.Arg(), driver.U32(uint32(n)), mask)
	}
	return joined, err
}

// check downloads the results on the stream that did not write them and
// compares them. The device memory is given back while the copies are still
// under way: its frees are ordered behind them.
func (it *iteration) check(ctx context.Context, t tables, keys, values, joined *column) error {
	got := expected{keys: make([]uint32, keys.Len()), values: make([]uint32, values.Len()), joined: make([]uint32, joined.Len())}
	err := errors.Join(it.download(ctx, got.keys, keys), it.download(ctx, got.values, values), it.download(ctx, got.joined, joined), it.freeAll(ctx))
	for _, l := range it.streams {
		err = errors.Join(err, it.w.env.Streams.Synchronize(ctx, l.ID()))
	}
	if err != nil {
		return err
	}
	want := t.expect()
	for _, pair := range [][2][]uint32{{got.keys, want.keys}, {got.values, want.values}, {got.joined, want.joined}} {
		it.w.checked.Add(1)
		if !slices.Equal(pair[0], pair[1]) {
			it.w.wrong.Add(1)
		}
	}
	return nil
}
