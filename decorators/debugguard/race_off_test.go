//go:build !race

package debugguard_test

const raceEnabled = false
