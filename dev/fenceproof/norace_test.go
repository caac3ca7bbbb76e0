//go:build !race

package fenceproof

const raceDetector = false
