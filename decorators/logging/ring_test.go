package logging

import (
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
)

func numbered(seq uint64) Record { return Record{Seq: seq, Event: core.Event{Requested: seq}} }

func seqs(records []Record) []uint64 {
	var s []uint64
	for _, r := range records {
		s = append(s, r.Seq)
	}
	return s
}

func TestRingKeepsTheNewestInOrderOfTheirNumbers(t *testing.T) {
	g := NewRing(3)
	if g.Cap() != 4 {
		t.Fatalf("cap %d, want the next power of two", g.Cap())
	}
	if got := g.Snapshot(); len(got) != 0 {
		t.Errorf("a new ring holds %v", seqs(got))
	}
	for _, seq := range []uint64{1, 2, 4, 3, 6, 5} {
		g.Put(numbered(seq))
	}
	got := seqs(g.Snapshot())
	if len(got) != 4 || got[0] != 3 || got[1] != 4 || got[2] != 5 || got[3] != 6 {
		t.Errorf("got %v, want 3 to 6", got)
	}
	if g.Total() != 6 || g.Dropped() != 0 {
		t.Errorf("total %d, dropped %d", g.Total(), g.Dropped())
	}
	if g.Flush(ctx) != nil || g.Close(ctx) != nil || len(g.Snapshot()) != 4 {
		t.Error("a closed ring can be read")
	}
}

func TestRingSizes(t *testing.T) {
	for size, want := range map[int]int{-1: DefaultRingSize, 0: DefaultRingSize, 1: 1, 2: 2, 5: 8, 4096: 4096} {
		if got := NewRing(size).Cap(); got != want {
			t.Errorf("NewRing(%d) keeps %d, want %d", size, got, want)
		}
	}
	if slot, stripe := unsafe.Sizeof(slot{}), unsafe.Sizeof(stripe{}); slot != 320 || stripe != 128 {
		t.Errorf("a slot takes %d bytes, a stripe %d: adjust their padding", slot, stripe)
	}
}

// TestRingHammer writes from many goroutines while others read. A record that
// was torn shows as a number that differs from its event.
func TestRingHammer(t *testing.T) {
	const each = 5000
	writers := 4 * runtime.GOMAXPROCS(0)
	g, numbers := NewRing(64), new(sequence)
	start, stop := make(chan struct{}), make(chan struct{})
	var writing, reading sync.WaitGroup
	for range writers {
		writing.Go(func() {
			<-start
			for range each {
				g.Put(numbered(numbers.next()))
			}
		})
	}
	for range 2 {
		reading.Go(func() {
			for {
				checkWhole(t, g.Snapshot())
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	close(start)
	writing.Wait()
	close(stop)
	reading.Wait()
	last := g.Snapshot()
	checkWhole(t, last)
	if len(last) != g.Cap() || g.Total() != uint64(writers*each) {
		t.Errorf("%d records of %d", len(last), g.Total())
	}
}

func checkWhole(t *testing.T, records []Record) {
	t.Helper()
	for i, r := range records {
		if r.Event.Requested != r.Seq {
			t.Errorf("record %d is torn: %d", r.Seq, r.Event.Requested)
		}
		if i > 0 && records[i-1].Seq >= r.Seq {
			t.Errorf("record %d comes after %d", r.Seq, records[i-1].Seq)
		}
	}
}
