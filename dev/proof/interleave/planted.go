package interleave

// plant is the fault to show, 0 for none.
var plant int

// Plant makes the instrumented code show fault n of those that were built into it, 0
// for none.
func Plant(n int) { plant = n }

// Planted reports whether fault n is to be shown.
func Planted(n int) bool { return n == plant }
