package names

import (
	"fmt"
	"hash/crc32"
	"strings"
	"unicode/utf8"
)

// Untagged is the tag of an allocation that named none, a value of core.Tag.
const Untagged = "untagged"

// Max is how many bytes of a name are kept: of a tag, of a launch's name and
// of whatever else a caller names. Names reach every log record, span and
// metric, so one of any length would make them unreadable.
const Max = 256

// Bound returns name if it has at most [Max] bytes. A longer one is cut
// between two characters, and ends in "…" and eight digits of a checksum of the
// whole name, so that two names with the same beginning stay two; bytes that are
// no UTF-8 in what is left become "\uFFFD". The result is never longer than
// Max. Every layer bounds what it is given, which costs a comparison of the
// length, and for a name that is too long an allocation and a pass over it: who
// has such a name should bound it once and keep it.
func Bound(name string) string {
	if len(name) <= Max {
		return name
	}
	return cut(name)
}

// cutMark is the length of what cut puts behind a name.
const cutMark = len("…00000000")

func cut(name string) string {
	kept := strings.ToValidUTF8(name[:beforeRune(name, Max-cutMark)], "\uFFFD")
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
