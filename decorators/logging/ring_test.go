package logging

import (
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

func numbered(seq uint64) Record { return Record{Seq: seq, Event: oplog.Event{Requested: seq}} }

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
	if entry, stripe := unsafe.Sizeof(entry{}), unsafe.Sizeof(stripe{}); entry != 64 || stripe != 128 {
		t.Errorf("an entry takes %d bytes, a stripe %d: adjust their padding", entry, stripe)
	}
	if record := unsafe.Sizeof(entry{}) + unsafe.Sizeof(core.Tag("")) + unsafe.Sizeof(Record{}); record != 392 {
		t.Errorf("a record takes %d bytes, which the documentation says otherwise", record)
	}
}

// Entries say all that records say that are put whole, for each operation that can be
// either.
func TestAnEntrySaysWhatAWholeRecordDoes(t *testing.T) {
	block := core.Block{ID: core.BlockID{Ptr: 1 << 40, Generation: 1 << 50, AllocStream: 1 << 60, Ordinal: core.MaxOrdinals - 1},
		Requested: 1 << 45, Bytes: 1 << 46, Align: 256, Tag: "tables", State: core.Live}
	for _, op := range []oplog.Op{oplog.OpAllocate, oplog.OpDeallocate, oplog.OpRelease} {
		short, whole := NewRing(1), NewRing(1)
		short.note(op, &block, 5, time.Hour)
		rec := Record{Event: oplog.Event{Op: op, Layer: "logging", Time: monotime.Instant(5).Time(), Duration: time.Hour, Ordinal: block.ID.Ordinal,
			Stream: block.ID.AllocStream}}
		rec.describe(&block)
		whole.Put(rec)
		if got, want := short.Snapshot()[0], whole.Snapshot()[0]; got != want || want != rec {
			t.Errorf("the entry says %+v, the record %+v", got, want)
		}
	}
}

// In a slot that is used again nothing stays of what was there.
func TestARingForgetsWhatItGaveUp(t *testing.T) {
	g := NewRing(1)
	block := core.Block{ID: core.BlockID{Ptr: 1, Generation: 2}, Tag: "tables"}
	failed := Record{Event: oplog.Event{Op: oplog.OpAllocate, Err: errBad, Launch: "kernel", Tag: "keys"}}
	for range 2 {
		g.Put(failed)
		if got := g.Snapshot(); len(got) != 1 || got[0] != failed {
			t.Errorf("got %+v", got)
		}
		g.note(oplog.OpDeallocate, &block, 1, 2)
		if got := g.Snapshot(); len(got) != 1 || got[0].Event.Block != block.ID || got[0].Event.Tag != "tables" || got[0].Event.Err != nil {
			t.Errorf("got %+v", got)
		}
		if left := g.parcels[0].slots.whole[0]; left != (Record{}) {
			t.Errorf("%+v is kept", left)
		}
	}
}

func on(stream core.StreamID, seq uint64) Record {
	return Record{Seq: seq, Event: oplog.Event{Stream: stream, Requested: seq}}
}

// newestOf is how many records of each stream are in the ring, which must be its
// newest.
func newestOf(t *testing.T, g *Ring) map[core.StreamID]int {
	t.Helper()
	newest, n := map[core.StreamID]uint64{}, map[core.StreamID]int{}
	records := g.Snapshot()
	for i := range records {
		r := &records[len(records)-1-i]
		if n[r.Event.Stream] > 0 && r.Seq != newest[r.Event.Stream]-1 {
			t.Fatalf("record %d of stream %v is missing, and %d is there", newest[r.Event.Stream]-1, r.Event.Stream, r.Seq)
		}
		newest[r.Event.Stream] = r.Seq
		n[r.Event.Stream]++
	}
	return n
}

func TestAStreamThatIsAloneHasTheWholeRing(t *testing.T) {
	g := NewRing(4096)
	for seq := uint64(1); seq <= 3*4096; seq++ {
		g.Put(on(1, seq))
	}
	if n := newestOf(t, g); n[1] != 4096 {
		t.Errorf("a ring of 4096 keeps %d", n[1])
	}
}

// Whoever comes later gets his part of what one stream has, and no more.
func TestStreamsShareTheRing(t *testing.T) {
	g := NewRing(4096)
	put := func(stream core.StreamID, from, n uint64) {
		for i := range n {
			g.Put(on(stream, from+i))
		}
	}
	put(1, 1, 10_000)
	put(2, 20_000, 100)
	put(1, 10_001, 9_000)
	if n := newestOf(t, g); n[2] != 100 || n[1] < 4096-128 {
		t.Errorf("beside a quiet stream: %v", n)
	}
	put(2, 20_100, 10_000)
	// Who was robbed last has begun a parcel whose old half is forgotten.
	if n := newestOf(t, g); n[1] <= 2048-parcelSize || n[1] > 2048 || n[2] != 2048 {
		t.Errorf("two busy streams: %v", n)
	}
	for stream := core.StreamID(3); stream <= 16; stream++ {
		put(stream, uint64(stream)*100_000, 5000)
	}
	put(1, 19_001, 5000)
	n := newestOf(t, g)
	for stream := core.StreamID(1); stream <= 16; stream++ {
		if n[stream] <= 256-parcelSize || n[stream] > 256 {
			t.Errorf("stream %v of 16 has %d records", stream, n[stream])
		}
	}
}

// TestRingHammer writes from many goroutines while others read. A record that
// was torn shows as a number that differs from its event.
func TestRingHammer(t *testing.T) {
	const each = 5000
	writers := 4 * runtime.GOMAXPROCS(0)
	for _, size := range []int{64, 1024} {
		t.Run(strconv.Itoa(size), func(t *testing.T) { hammerRing(t, NewRing(size), writers, each) })
	}
}

func hammerRing(t *testing.T, g *Ring, writers, each int) {
	numbers := new(sequence)
	start, stop := make(chan struct{}), make(chan struct{})
	var writing, reading sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			<-start
			for i := range each {
				g.Put(on(core.StreamID(w+i/1000), numbers.next())) // each goes from stream to stream
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
	missing := g.Cap() - len(last) // what a stripe took from another and has not filled yet
	if missing < 0 || missing > len(g.stripes)*parcelSize || g.Total() != uint64(writers*each) {
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

// Whoever adds up what the ring has must know from when on that is everything,
// however the streams shared it.
func TestARingSaysFromWhenOnItIsComplete(t *testing.T) {
	for _, streams := range []uint64{1, 3, 16} {
		g := NewRing(1024)
		for n := range uint64(5000) {
			stream := core.StreamID(n % streams)
			if n%7 == 0 {
				stream = 0 // has more than the others
			}
			g.Put(Record{Event: oplog.Event{Stream: stream, Requested: n, Time: testStart.Add(time.Duration(n) * time.Second), Duration: time.Millisecond}})
			if n%61 != 0 && n > 40 { // where parcels end does not matter
				continue
			}
			since, kept := g.Since(), g.Snapshot()
			if since.IsZero() {
				if len(kept) != int(n)+1 {
					t.Fatalf("%d streams: %d records of %d are kept, and none is said to be lost", streams, len(kept), n+1)
				}
				continue
			}
			has := map[uint64]bool{}
			for _, r := range kept {
				has[r.Event.Requested] = true
			}
			first := uint64(since.Sub(testStart) / time.Second)
			for m := first; m <= n; m++ {
				if !has[m] {
					t.Fatalf("%d streams: the ring is said to be complete from record %d on, and lacks %d of %d", streams, first, m, n+1)
				}
			}
			if streams == 1 && n-first < 1024-2*parcelSize {
				t.Fatalf("one stream has the whole ring, and only %d records of it are sure", n-first)
			}
		}
	}
}
