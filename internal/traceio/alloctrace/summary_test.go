package alloctrace_test

import (
	"math"
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
)

func TestSummaryCountsWhatTheProgramDidWrong(t *testing.T) {
	s := alloctrace.Summarize(read(t, header+
		row("allocate", "0x1", "10")+
		row("allocate", "0x1", "5")+ // the first block is lost
		row("free", "0x1", "99")+ // the size that counts is the allocation's
		row("free", "0x1", "5")+ // unknown by now
		row("free", "(nil)", "0")+ // a free of nothing is not unknown
		row("allocate failure", "(nil)", "77")))
	if s.Events != 6 || s.Allocations != 2 || s.Frees != 3 || s.Failures != 1 {
		t.Errorf("counts: %+v", s)
	}
	if s.Repeated != 1 || s.UnknownFrees != 1 {
		t.Errorf("%d repeated, %d unknown frees; want 1, 1", s.Repeated, s.UnknownFrees)
	}
	if s.PeakLive != 15 || s.EndLive != 10 || len(s.LiveRows) != 1 || s.LiveRows[0].Line != 2 {
		t.Errorf("peak %d, end %d, live %+v; want 15, 10, line 2", s.PeakLive, s.EndLive, s.LiveRows)
	}
}

func TestSummaryFollowsGenerationsInLogs(t *testing.T) {
	s := alloctrace.Summarize(read(t, log))
	if s.PeakLive != 100 || s.EndLive != 0 || s.Failures != 2 || len(s.LiveRows) != 0 {
		t.Errorf("summary: %+v", s)
	}
	if !slices.Equal(s.Streams, []uint64{3}) {
		t.Errorf("streams %v, want 3", s.Streams)
	}
}

func TestSummaryOfSumsBeyond64BitsIsExactAgainBelow(t *testing.T) {
	s := alloctrace.Summarize(read(t, header+
		row("allocate", "0x1", "18446744073709551615")+
		row("allocate", "0x2", "18446744073709551615")+
		row("allocate", "0x3", "7")+
		row("free", "0x2", "1")+
		row("free", "0x1", "1")))
	if s.PeakLive != math.MaxUint64 || s.EndLive != 7 {
		t.Errorf("peak %d, end %d; want the largest number and 7", s.PeakLive, s.EndLive)
	}
}
