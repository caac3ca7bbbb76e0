package workload

import (
	"cmp"
	"math/rand/v2"
	"slices"
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
	// joined holds, for each sorted row, the partner's value, or noPartner.
	joined []uint32
	// kept are the values of the rows that pass the filter, in their order.
	kept []uint32
}

// noPartner marks a row without a partner. Right values may equal it, which
// the comparison allows for nothing: both sides say the same then.
const noPartner = ^uint32(0)

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
			v = noPartner
		}
		e.joined = append(e.joined, v)
		if v < below {
			e.kept = append(e.kept, t.leftValues[i])
		}
	}
	return e
}
