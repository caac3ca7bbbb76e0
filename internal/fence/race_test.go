//go:build race

package fence

const raceDetector = true
