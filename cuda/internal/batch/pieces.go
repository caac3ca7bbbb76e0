package batch

import (
	"encoding/binary"

	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// A warp of the guard's kernels takes one record at a time, so a large region
// goes to the device in pieces, and their results are joined here: the device
// has no way to do that in host memory.
//
// Records cross the bus, 64 bytes for each there and back, and pieces cross
// none; but a device reads at full speed only with some thousand warps at it.
// So a batch is cut into about as many pieces as a large device runs warps,
// none smaller than what is read in the time that its record takes to come.
const (
	minPiece  = 32 << 10
	maxPieces = 8192
	// pieceAlign keeps the vectors of a warp on whole cache lines, if those of
	// the region are, and each piece in step with the pattern.
	pieceAlign = 4 << 10
)

// pieceBytes is the size of all pieces in a batch but the last of each region.
func pieceBytes(regions []deviceops.Region) uint64 {
	var total uint64
	for _, r := range regions {
		total += r.Bytes
	}
	return max(minPiece, (total/maxPieces+pieceAlign-1)/pieceAlign*pieceAlign)
}

// countPieces is the number of records for the regions in pieces of that size:
// at least one each.
func countPieces(regions []deviceops.Region, size uint64) int {
	n := 0
	for _, r := range regions {
		n += max(1, int((r.Bytes+size-1)/size))
	}
	return n
}

// Content is what the third word of a record is for.
type Content bool

const (
	// Patterns are for a table in which each piece has its region's pattern.
	Patterns Content = false
	// Offsets are for one in which each has the offset at which it begins in its region.
	Offsets Content = true
)

// writePieces writes the table of the regions' pieces. The word that the
// kernels leave alone says which region a piece is of.
func writePieces(table []byte, regions []deviceops.Region, size uint64, content Content) {
	for i, r := range regions {
		for at := uint64(0); at == 0 || at < r.Bytes; at += size {
			third := r.Pattern
			if content == Offsets {
				third = at
			}
			for word, v := range [...]uint64{r.Ptr + at, min(size, r.Bytes-at), third, uint64(i)} {
				binary.LittleEndian.PutUint64(table[8*word:], v)
			}
			table = table[driver.GuardRecord:]
		}
	}
}

// presetResults writes that no region differs: the kernels only write what does.
func presetResults(results []byte) {
	for at := 0; at < len(results); at += driver.GuardRecord {
		binary.LittleEndian.PutUint64(results[at:], driver.GuardNoMismatch)
	}
}

// recordWord is a word of the first of some records.
func recordWord(records []byte, i int) uint64 { return binary.LittleEndian.Uint64(records[8*i:]) }

// joinSums returns the checksums of the n regions whose pieces' results these
// are.
func joinSums(table, results []byte, n int) []uint64 {
	sums := make([]uint64, n)
	for ; len(table) > 0; table, results = table[driver.GuardRecord:], results[driver.GuardRecord:] {
		sums[recordWord(table, 3)] += recordWord(results, 0)
	}
	return sums
}

// joinPieces returns the mismatches of the regions whose pieces' results
// these are.
func joinPieces(table, results []byte) []deviceops.Mismatch {
	var bad []deviceops.Mismatch
	region, offset := -1, uint64(0)
	for ; len(table) > 0; table, results = table[driver.GuardRecord:], results[driver.GuardRecord:] {
		if of := int(recordWord(table, 3)); of != region {
			region, offset = of, 0
		}
		first, differing := recordWord(results, 0), recordWord(results, 1)
		switch last := len(bad) - 1; {
		case first == driver.GuardNoMismatch:
		case last >= 0 && bad[last].Region == region:
			bad[last].BadBytes += differing
		default:
			bad = append(bad, deviceops.Mismatch{Region: region, Offset: offset + first, BadBytes: differing, Expected: results[16], Seen: results[17]})
		}
		offset += recordWord(table, 1)
	}
	return bad
}
