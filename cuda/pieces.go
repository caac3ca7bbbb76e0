package cuda

import (
	"encoding/binary"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// A warp of the guard's kernels takes one record at a time, so a large region
// goes to the device in pieces, and their results are joined here: the device
// has no way to do that in host memory. Pieces are small enough to spread a
// region over the device, and few enough for their table to stay small beside
// it.
const (
	minPiece  = 64 << 10
	maxPieces = 4096
)

// pieceBytes is the size of all pieces of a region but the last. It is a
// multiple of the pattern, so that each piece begins with the pattern, and of
// the widest access, so that none begins unaligned unless the region does.
func pieceBytes(region uint64) uint64 { return max(minPiece, (region/maxPieces+15)&^15) }

// countPieces is the number of records for the regions: at least one each.
func countPieces(regions []core.Region) int {
	n := 0
	for _, r := range regions {
		size := pieceBytes(r.Bytes)
		n += max(1, int((r.Bytes+size-1)/size))
	}
	return n
}

// writePieces writes the table of the regions' pieces. The word that the
// kernels leave alone says which region a piece is of.
func writePieces(table []byte, regions []core.Region) {
	for i, r := range regions {
		size := pieceBytes(r.Bytes)
		for first := true; first || r.Bytes > 0; first = false {
			piece := min(size, r.Bytes)
			for word, v := range [...]uint64{r.Ptr, piece, r.Pattern, uint64(i)} {
				binary.LittleEndian.PutUint64(table[8*word:], v)
			}
			table = table[driver.GuardRecord:]
			r.Ptr, r.Bytes = r.Ptr+piece, r.Bytes-piece
		}
	}
}

// joinPieces returns the mismatches of the regions whose pieces' results
// these are.
func joinPieces(table, results []byte) []core.Mismatch {
	word := func(records []byte, i int) uint64 { return binary.LittleEndian.Uint64(records[8*i:]) }
	var bad []core.Mismatch
	region, offset := -1, uint64(0)
	for ; len(table) > 0; table, results = table[driver.GuardRecord:], results[driver.GuardRecord:] {
		if of := int(word(table, 3)); of != region {
			region, offset = of, 0
		}
		first, differing := word(results, 0), word(results, 1)
		switch last := len(bad) - 1; {
		case first == driver.GuardNoMismatch:
		case last >= 0 && bad[last].Region == region:
			bad[last].BadBytes += differing
		default:
			bad = append(bad, core.Mismatch{Region: region, Offset: offset + first, BadBytes: differing, Expected: results[16], Seen: results[17]})
		}
		offset += word(table, 1)
	}
	return bad
}
