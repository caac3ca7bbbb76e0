// Package alloctrace reads allocation traces, the input of replay: the CSV
// that RMM's logging adaptor writes, plain or gzipped, and the JSON-lines log
// of Fencepost's own logging decorator.
//
// A trace is read to its end and every row of it is checked before [Read]
// returns, so that a replay never starts on a file that it cannot finish.
// [Reader] is the row-by-row form; neither holds more than one line of at most
// [MaxLine] bytes beside the rows themselves.
//
// What is malformed is a [ParseError] with file, line and field. What is
// merely odd, such as a free of a pointer that was never allocated, is the
// program's behaviour and not the file's: it is a row like any other.
package alloctrace
