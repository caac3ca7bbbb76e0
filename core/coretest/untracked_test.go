package coretest

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// newUntracked is a synchronous backend that cannot track uses, as
// cuda.DirectResource is one.
func newUntracked(*testing.T) Subject {
	m := newMutant()
	m.ReleaseAtFree()
	none := core.Unsupported{Resource: "untracked"}
	m.prepare, m.finish, m.abort, m.record = none.PrepareUse, none.FinishUse, none.AbortUse, none.RecordUse
	m.features = 0
	return m.subject()
}

func TestUntrackedBackendConforms(t *testing.T) { Run(t, newUntracked) }

// forgetful lost the feature that its owner expects of it.
func forgetful(t *testing.T) Subject {
	s := newUntracked(t)
	s.Features = core.UseTracking | core.StreamOrdered
	return s
}
