package core

import (
	"fmt"
	"hash/crc32"
	"strings"
	"unicode/utf8"
)

// nameOf is the name of a value of kind, "kind(n)" for one that has none.
func nameOf[T ~uint8](value T, kind string, names ...string) string {
	if int(value) < len(names) && names[value] != "" {
		return names[value]
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(value))
}

// MaxName is how many bytes of a name are kept: of a tag, of a launch's name and
// of whatever else a caller names. Names reach every log record, span and
// metric, so one of any length would make them unreadable.
const MaxName = 256

// BoundName returns name if it has at most [MaxName] bytes. A longer one is cut
// between two characters, and ends in "…" and eight digits of a checksum of the
// whole name, so that two names with the same beginning stay two; bytes that are
// no UTF-8 in what is left become "\uFFFD". The result is never longer than
// MaxName. Every layer bounds what it is given, which costs a comparison of the
// length, and for a name that is too long an allocation and a pass over it: who
// has such a name should bound it once and keep it.
func BoundName(name string) string {
	if len(name) <= MaxName {
		return name
	}
	return cutName(name)
}

// cutMark is the length of what cutName puts behind a name.
const cutMark = len("…00000000")

func cutName(name string) string {
	kept := strings.ToValidUTF8(name[:beforeRune(name, MaxName-cutMark)], "\uFFFD")
	if len(kept) > MaxName-cutMark { // what replaces a byte is longer
		kept = kept[:beforeRune(kept, MaxName-cutMark)]
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
