//go:build race

package debugguard_test

// raceEnabled says that the race detector is on, under which sync.Pool drops
// objects at random.
const raceEnabled = true
