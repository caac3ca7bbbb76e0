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

// TooLong is the rows of a file that were skipped because they are longer than
// [MaxLine].
type TooLong struct {
	// Rows is how many, First the line of the first, counted from 1.
	Rows, First int
}
