// Package size prints numbers of bytes for people.
package size

import (
	"fmt"
	"math"
)

// Of is a number of bytes with one decimal of a binary unit, such as "1.5 GiB". A message with
// several numbers takes [Figures].
func Of(n uint64) string { return rounded(n, 1) }

// mostDecimals is how many decimals are read more easily than all bytes.
const mostDecimals = 3

// Figures prints the numbers of one message, which are all that it has. Two that differ never read
// the same: where [Of] does not tell them apart, both have up to three decimals, or are exact, such
// as "9557001 B". So a reader sees that a request of "9.12 MiB" does not fit into "9.11 MiB".
func Figures(all ...uint64) (of func(n uint64) string) {
	var values [mostDecimals + 1]map[string]uint64 // by what they read, or noValue for several
	return func(n uint64) string {
		for decimals := 1; decimals <= mostDecimals; decimals++ {
			if values[decimals] == nil {
				values[decimals] = byText(all, decimals)
			}
			text := rounded(n, decimals)
			if v, ok := values[decimals][text]; !ok || v == n {
				return text
			}
		}
		return fmt.Sprintf("%d B", n)
	}
}

// noValue stands for several values. A figure of as many bytes stays rounded, and the others of its
// text are exact.
const noValue = math.MaxUint64

func byText(all []uint64, decimals int) map[string]uint64 {
	values := map[string]uint64{}
	for _, n := range all {
		text := rounded(n, decimals)
		if v, ok := values[text]; ok && v != n {
			n = noValue
		}
		values[text] = n
	}
	return values
}

func rounded(n uint64, decimals int) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024-math.Pow10(-decimals)/2 && i < len(units)-1 { // "1024.0" is one of the next unit
		v, i = v/1024, i+1
	}
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.*f %s", decimals, v, units[i])
}
