package core_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// One operation on an account: a block comes and goes, which are two, or something is noted.
func BenchmarkAccount(b *testing.B) {
	b.Run("change", func(b *testing.B) {
		a := core.NewAccount()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if i%2 == 0 {
				a.Change(100, 128, true)
			} else {
				a.Change(-100, -128, false)
			}
		}
	})
	b.Run("note", func(b *testing.B) {
		a := core.NewAccount()
		b.ReportAllocs()
		for b.Loop() {
			a.Note(func(j *core.JobAccount) { j.Launches++ })
		}
	})
}
