package alloctrace

// Limits bound what is read of a file. A megabyte of gzip unpacks to a gigabyte,
// and a row of a few bytes takes a hundred in memory: what comes from somebody
// else must not take all there is.
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
}
