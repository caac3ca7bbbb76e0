package batch

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

func TestPiecesCoverEachRegionWithItsPatternInStep(t *testing.T) {
	for _, sizes := range [][]uint64{
		{0, 1, minPiece - 1, minPiece, minPiece + 1, 3*minPiece + 5},
		{maxPieces*minPiece + 1, 7}, {1<<34 + 3, 0, 1 << 37},
	} {
		var regions []deviceops.Region
		for i, size := range sizes {
			regions = append(regions, deviceops.Region{Ptr: uint64(i+1)<<40 + 3, Bytes: size, Pattern: uint64(i) + 100})
		}
		for _, content := range []Content{Patterns, Offsets} {
			size := pieceBytes(regions)
			table := make([]byte, countPieces(regions, size)*driver.GuardRecord)
			writePieces(table, regions, size, content)
			if n := len(table) / driver.GuardRecord; n > maxPieces+len(regions) {
				t.Errorf("%d pieces of %v", n, sizes)
			}
			checkPieces(t, table, regions, content)
		}
	}
}

func checkPieces(t *testing.T, table []byte, regions []deviceops.Region, content Content) {
	t.Helper()
	for i, r := range regions {
		at, n := r.Ptr, 0
		for ; len(table) > 0 && recordWord(table, 3) == uint64(i); n++ {
			third := r.Pattern
			if content == Offsets {
				third = at - r.Ptr
			}
			if recordWord(table, 0) != at || (at-r.Ptr)%pieceAlign != 0 || recordWord(table, 2) != third {
				t.Fatalf("piece %d of %d bytes begins at %#x with %d, want %#x and %d", n, r.Bytes, recordWord(table, 0), recordWord(table, 2), at, third)
			}
			at += recordWord(table, 1)
			table = table[driver.GuardRecord:]
		}
		if at != r.Ptr+r.Bytes || n < 1 {
			t.Errorf("%d pieces cover %d of %d bytes", n, at-r.Ptr, r.Bytes)
		}
	}
	if len(table) > 0 {
		t.Errorf("%d records too many", len(table)/driver.GuardRecord)
	}
}

func TestResultsOfPiecesAreJoinedByRegion(t *testing.T) {
	regions := []deviceops.Region{{Bytes: 3 * minPiece}, {Bytes: 0}, {Bytes: 2*minPiece + 1}, {Bytes: 8}}
	table := make([]byte, countPieces(regions, minPiece)*driver.GuardRecord)
	writePieces(table, regions, minPiece, Patterns)
	results := make([]byte, len(table))
	for piece, r := range map[int][2]uint64{1: {10, 3}, 2: {0, 1}, 6: {0, 1}, 7: {7, 1}} {
		binary.LittleEndian.PutUint64(results[piece*driver.GuardRecord:], r[0])
		binary.LittleEndian.PutUint64(results[piece*driver.GuardRecord+8:], r[1])
		results[piece*driver.GuardRecord+16], results[piece*driver.GuardRecord+17] = byte(piece), 0xee
	}
	for piece := range len(table) / driver.GuardRecord {
		if binary.LittleEndian.Uint64(results[piece*driver.GuardRecord+8:]) == 0 {
			binary.LittleEndian.PutUint64(results[piece*driver.GuardRecord:], driver.GuardNoMismatch)
		}
	}
	want := []deviceops.Mismatch{
		{Region: 0, Offset: minPiece + 10, BadBytes: 4, Expected: 1, Seen: 0xee},
		{Region: 2, Offset: 2 * minPiece, BadBytes: 1, Expected: 6, Seen: 0xee},
		{Region: 3, Offset: 7, BadBytes: 1, Expected: 7, Seen: 0xee},
	}
	if got := joinPieces(table, results); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestSumsOfPiecesAreAddedByRegion(t *testing.T) {
	regions := []deviceops.Region{{Bytes: 3 * minPiece}, {Bytes: 0}, {Bytes: minPiece + 1}}
	table := make([]byte, countPieces(regions, minPiece)*driver.GuardRecord)
	writePieces(table, regions, minPiece, Offsets)
	results := make([]byte, len(table))
	for piece := range len(table) / driver.GuardRecord {
		binary.LittleEndian.PutUint64(results[piece*driver.GuardRecord:], 1<<63+uint64(piece))
	}
	if got, want := joinSums(table, results, 3), []uint64{1<<63 + 3, 1<<63 + 3, 9}; !slices.Equal(got, want) {
		t.Errorf("got %#x, want %#x", got, want)
	}
}
