package alloctrace

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// nilPointer is how C's printf, and with it RMM, writes a null pointer.
const nilPointer = "(nil)"

// maxHours keeps a time of day far below the range of time.Duration.
const maxHours = 99999

// parseUint reads digits only: strconv's signs and underscores are not in any
// of the formats.
func parseUint(field, s string, base int) (uint64, *ParseError) {
	n, err := strconv.ParseUint(s, base, 64)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, strconv.ErrRange):
		return 0, bad(field, s, "does not fit in 64 bits")
	case strings.HasPrefix(s, "-"):
		return 0, bad(field, s, "must not be negative")
	case base == 16:
		return 0, bad(field, s, "want hexadecimal digits")
	default:
		return 0, bad(field, s, "want a whole number")
	}
}

func parsePointer(field, s string) (uint64, *ParseError) {
	if s == nilPointer {
		return 0, nil
	}
	digits, ok := strings.CutPrefix(s, "0x")
	if !ok {
		return 0, bad(field, s, `want "0x" and hexadecimal digits, or "(nil)"`)
	}
	n, err := parseUint(field, digits, 16)
	if err != nil {
		err.Value = s
	}
	return n, err
}

// parseID reads a stream or thread: a number or, as newer versions of RMM
// write it, a handle.
func parseID(field, s string) (uint64, *ParseError) {
	if s == nilPointer || strings.HasPrefix(s, "0x") {
		return parsePointer(field, s)
	}
	return parseUint(field, s, 10)
}

// parseClock reads HH:MM:SS and six digits of microseconds behind a colon or
// a full stop; versions of RMM differ in that sign.
func parseClock(field, s string) (time.Duration, *ParseError) {
	const want = "want HH:MM:SS:uuuuuu or HH:MM:SS.uuuuuu"
	cut := len(s) - len(":000000")
	if cut < 0 || s[cut] != ':' && s[cut] != '.' {
		return 0, bad(field, s, want)
	}
	parts := strings.Split(s[:cut], ":")
	if len(parts) != 3 {
		return 0, bad(field, s, want)
	}
	units := [...]struct {
		text string
		unit time.Duration
		max  uint64
	}{
		{parts[0], time.Hour, maxHours},
		{parts[1], time.Minute, 59},
		{parts[2], time.Second, 59},
		{s[cut+1:], time.Microsecond, 999_999},
	}
	var sum time.Duration
	for _, u := range units {
		n, err := strconv.ParseUint(u.text, 10, 32)
		if err != nil || n > u.max {
			return 0, bad(field, s, want)
		}
		sum += time.Duration(n) * u.unit
	}
	return sum, nil
}
