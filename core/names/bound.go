package names

import (
	"fmt"
	"hash/crc32"
	"strings"
	"unicode/utf8"
)

// Untagged is the tag of an allocation that named none, a value of core.Tag.
const Untagged = "untagged"

// Max is how many bytes of a name the runtime keeps: of a tag, a job, a launch and everything else
// that a caller names. Names reach every log record, span and metric, so a longer one would make
// them unreadable.
const Max = 256

// Bound returns a name as the runtime keeps and shows it: at most [Max] bytes of UTF-8.
//   - It returns a name of at most [Max] bytes that is valid UTF-8 as it is, and allocates nothing.
//   - It cuts any other name between two characters and replaces bytes that are no UTF-8 by
//     "\uFFFD". It then appends "…" and eight digits of a checksum of the whole name, so that two
//     names that differ only in what was cut or replaced stay two.
//
// A bounded name stays as it is when it is bounded again. Every function that takes a name calls
// Bound before it keeps the name or passes it on. The cost is one pass over the name, so a caller
// with a very long name should bound it once. It is safe for concurrent use and does not block.
func Bound(name string) string {
	if len(name) <= Max && utf8.ValidString(name) {
		return name
	}
	return cut(name)
}

// cutMark is the length of what cut puts behind a name.
const cutMark = len("…00000000")

func cut(name string) string {
	kept := name
	if len(kept) > Max-cutMark {
		kept = kept[:beforeRune(kept, Max-cutMark)]
	}
	kept = strings.ToValidUTF8(kept, "\uFFFD")
	if len(kept) > Max-cutMark { // what replaces a byte is longer
		kept = kept[:beforeRune(kept, Max-cutMark)]
	}
	return fmt.Sprintf("%s…%08x", kept, crc32.ChecksumIEEE([]byte(name)))
}

// beforeRune is the last index up to at where no character of s is divided.
func beforeRune(s string, at int) int {
	for i := at; i > at-utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			return i
		}
	}
	return at // no UTF-8
}
