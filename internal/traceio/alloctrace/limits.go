package alloctrace

// Limits bound what is read of a file. A megabyte of gzip unpacks to a gigabyte,
// and a row of a few bytes takes a hundred in memory: a foreign file must
// not take all there is.
type Limits struct {
	// Rows is the most lines behind the header, those that are skipped
	// included.
	Rows int
	// Bytes is the most bytes after unpacking.
	Bytes uint64
}

// DefaultLimits keep what is held in memory to about a gigabyte, whatever is in
// the file.
var DefaultLimits = Limits{Rows: 1_000_000, Bytes: 512 << 20}

// Passed is what of a file was passed over. Lines are counted from 1.
type Passed struct {
	// TooLong is how many rows are longer than [MaxLine], FirstTooLong the line
	// of the first.
	TooLong, FirstTooLong int
	// Cut is the line in which the file ends in the middle of a row, as the
	// file of a process that crashed does, or one on a full disk; zero if it
	// ends where a row does.
	Cut int
	// Missing is how many records of a log's process are not in it, by their
	// numbers: those before its first, lost ones, and other runtimes'.
	Missing uint64
}

// numbers are those of the records of a log, which a process counts from 1.
type numbers struct{ lowest, highest, seen uint64 }

func (n *numbers) note(number uint64) {
	if number > 0 {
		n.seen++
		if n.seen == 1 || number < n.lowest {
			n.lowest = number
		}
		n.highest = max(n.highest, number)
	}
}

// missing is how many there are not. A log of several processes has more than the
// highest number of any.
func (n *numbers) missing() uint64 { return max(n.highest, n.seen) - n.seen }

// holes says where records are missing.
func (n *numbers) holes() Holes {
	switch {
	case n.seen == 0:
		return UnknownHoles
	case n.missing() > n.lowest-1:
		return SomeHoles
	}
	return NoHoles
}
