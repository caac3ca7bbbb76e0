package debugguard

import (
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// A copy to the host that the runtime made itself cannot have written device memory.
// It is named where there is nobody else, rather than nobody.
func TestCopiesThatOnlyReadAreSuspectedLast(t *testing.T) {
	var l launchLog
	l.resize(64)
	add := func(id uint64, stream core.StreamID, readsOnly bool) {
		l.addRecorded(&launchRecord{use: core.UseRecord{LaunchID: id, Launch: "copy.to_host", Stream: stream, Access: core.Read}, began: l.now(), readsOnly: readsOnly})
	}
	suspects := func(w window) (ids []uint64) {
		found, _, _ := l.suspects(w, []core.UseRecord{{LaunchID: 4}}, 16)
		for _, u := range found {
			ids = append(ids, u.LaunchID)
		}
		return ids
	}
	add(1, 1, false) // may still be running behind the copy's back
	add(2, 1, true)
	from := l.tick()
	add(3, 0, false) // somebody else's launch of that name
	add(4, 0, true)
	w := window{from: from, to: l.tick(), stream: 0}
	add(5, 2, true)
	if got, want := suspects(w), []uint64{3, 1}; !slices.Equal(got, want) {
		t.Errorf("suspects %v, want %v", got, want)
	}

	l = launchLog{}
	l.resize(64)
	from = l.tick()
	add(4, 0, true)
	if got, want := suspects(window{from: from, to: l.tick(), stream: 0}), []uint64{4}; !slices.Equal(got, want) {
		t.Errorf("where there is no other: %v, want %v", got, want)
	}
}

// What the device was seen to have done before the window cannot have written in it,
// if it is where its launch says. It is named where there is nobody else: the launch
// may have been declared on another stream than its work.
func TestWhatIsDoneIsNoSuspect(t *testing.T) {
	var l launchLog
	l.resize(64)
	add := func(id uint64, stream core.StreamID) {
		l.addRecorded(&launchRecord{use: core.UseRecord{LaunchID: id, Stream: stream, Access: core.Write}, began: l.now()})
	}
	add(1, 1)
	add(2, 2)
	behind := l.tick()
	add(3, 3)
	l.completed(1, behind)
	l.completed(3, behind) // of what came before it only
	from := l.tick()
	l.completed(2, behind) // too late: it may have been running in the window
	add(4, 0)
	found, _, _ := l.suspects(window{from: from, to: l.tick(), stream: 0}, nil, 16)
	var got []uint64
	for _, u := range found {
		got = append(got, u.LaunchID)
	}
	if want := []uint64{4, 3, 2}; !slices.Equal(got, want) {
		t.Errorf("suspects %v, want %v", got, want)
	}

	l = launchLog{}
	l.resize(64)
	add(1, 1)
	l.completed(1, l.tick())
	from = l.tick()
	if found, _, _ := l.suspects(window{from: from, to: l.tick(), stream: 0}, nil, 16); len(found) != 1 || found[0].LaunchID != 1 {
		t.Errorf("where there is no other: %v, want launch 1", found)
	}
}
