package fit

import (
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
)

// columns is how many stretches a course has.
const columns = 720

// course is what was live and held over the recording's time: the most of each of its stretches, which are as long as each other.
type course struct {
	begins, ends time.Duration
	// live is as the program asks for it, whether or not it is given; held is of the device.
	live, held [columns]uint64
}

// follower makes a course.
type follower struct {
	course
	now    uint64
	sizes  map[alloctrace.Key]uint64
	column int
}

func newFollower(rows []alloctrace.Row) *follower {
	f := &follower{sizes: map[alloctrace.Key]uint64{}}
	if len(rows) > 0 {
		f.begins, f.ends = rows[0].Time, rows[0].Time
	}
	for i := range rows {
		f.begins, f.ends = min(f.begins, rows[i].Time), max(f.ends, rows[i].Time)
	}
	return f
}

// played is for each row in turn.
func (f *follower) played(row *alloctrace.Row, stats func() core.Stats) {
	share := (float64(row.Time) - float64(f.begins)) / max(1, float64(f.ends)-float64(f.begins)) // hostile times overflow as numbers
	for to := int(share * (columns - 1)); f.column < to; f.column++ {
		f.live[f.column+1], f.held[f.column+1] = f.now, f.held[f.column]
	}
	switch {
	case row.IsEmpty() || row.Action == alloctrace.AllocateFailure:
	case row.Action == alloctrace.Free:
		f.now -= f.sizes[row.Key()]
		delete(f.sizes, row.Key())
	default:
		f.sizes[row.Key()] += row.Bytes
		f.now += row.Bytes
	}
	f.live[f.column] = max(f.live[f.column], f.now)
	s := stats()
	f.held[f.column] = max(f.held[f.column], s.Reserved+s.Isolated, s.Live.Bytes)
}
