package workload

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/fencepost-gpu/fencepost/examples/service/kernels"
)

// tables is the input of one iteration: left is sorted by key and then
// probed against a hash table of right, whose keys are unique.
type tables struct {
	leftKeys, leftValues   []uint32
	rightKeys, rightValues []uint32
}

func newTables(rng *rand.Rand, rows int) tables {
	half := rows / 2
	t := tables{
		leftKeys: make([]uint32, rows), leftValues: make([]uint32, rows),
		rightKeys: make([]uint32, half), rightValues: make([]uint32, half),
	}
	for i := range t.rightKeys {
		t.rightKeys[i], t.rightValues[i] = uint32(2*i)*2654435761|1, rng.Uint32()
	}
	for i := range t.leftKeys {
		t.leftValues[i] = uint32(i)
		t.leftKeys[i] = rng.Uint32()
		if rng.IntN(2) == 0 { // half of the rows find a partner
			t.leftKeys[i] = t.rightKeys[rng.IntN(half)]
		}
	}
	return t
}

// expected is what the CPU makes of the tables, by other means than the
// kernels: the standard library's sort and a Go map.
type expected struct {
	keys, values []uint32
	// joined holds, for each sorted row, the partner's value, or [kernels.NoPartner].
	// Right values may equal it: both sides say the same then.
	joined []uint32
	// kept are the values of the rows that pass the filter, in their order.
	kept []uint32
}

func (t tables) expect() expected {
	order := make([]int, len(t.leftKeys))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.leftKeys[a], t.leftKeys[b]) })
	partner := make(map[uint32]uint32, len(t.rightKeys))
	for i, k := range t.rightKeys {
		partner[k] = t.rightValues[i]
	}
	e := expected{}
	for _, i := range order {
		e.keys = append(e.keys, t.leftKeys[i])
		e.values = append(e.values, t.leftValues[i])
		v, ok := partner[t.leftKeys[i]]
		if !ok {
			v = kernels.NoPartner
		}
		e.joined = append(e.joined, v)
		if v < below {
			e.kept = append(e.kept, t.leftValues[i])
		}
	}
	return e
}

// got are the results as they came back: the columns of the same names.
type got struct{ keys, values, joined, kept, survivors []uint32 }

// room is the host memory that the results of n rows need.
func room(n int, alloc func(words int) []uint32) got {
	return got{alloc(n), alloc(n), alloc(n), alloc(n), alloc(kernels.Slices(n))}
}

// check brings the results back and compares them.
func (it *iteration) check(ctx context.Context, t tables, r *results) error {
	g := room(len(t.leftKeys), func(n int) []uint32 { return make([]uint32, n) })
	if err := it.fetch(ctx, r, g); err != nil {
		return err
	}
	it.w.compare(g, t.expect())
	return nil
}

// fetch downloads the results on the stream that did not write them, and
// waits. The device memory is given back while the copies are still under way:
// its frees are ordered behind them.
func (it *iteration) fetch(ctx context.Context, r *results, to got) error {
	err := errors.Join(it.download(ctx, to.keys, r.keys), it.download(ctx, to.values, r.values), it.download(ctx, to.joined, r.joined),
		it.download(ctx, to.kept, r.kept), it.download(ctx, to.survivors, r.survivors))
	err = errors.Join(err, it.freeAll(ctx))
	for _, l := range it.streams {
		err = errors.Join(err, it.w.env.Streams.Synchronize(ctx, l.ID()))
	}
	return err
}

// compare counts the results and those that differ.
func (w *Workload) compare(g got, want expected) {
	for _, pair := range [][2][]uint32{{g.keys, want.keys}, {g.values, want.values}, {g.joined, want.joined}, {gather(g.kept, g.survivors), want.kept}} {
		w.checked.Add(1)
		if !slices.Equal(pair[0], pair[1]) {
			w.wrong.Add(1)
		}
	}
}

// gather joins the survivors of all slices. A number that a missing fence has
// spoilt may be anything.
func gather(kept, survivors []uint32) []uint32 {
	all := make([]uint32, 0, len(kept))
	for i, n := range survivors {
		slice := kernels.Slice(kept, i)
		all = append(all, slice[:min(int(n), len(slice))]...)
	}
	return all
}
