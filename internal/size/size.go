// Package size prints numbers of bytes for people.
package size

import "fmt"

// Of is a number of bytes with one decimal of a binary unit, such as "1.5 GiB".
func Of(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1023.95 && i < len(units)-1 { // "1024.0" is one of the next unit
		v, i = v/1024, i+1
	}
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
