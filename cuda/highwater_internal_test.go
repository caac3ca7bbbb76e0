package cuda

import (
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// Bytes that are freed on one stream and allocated on another while the slack
// is recalled must not be counted twice.
func TestThePeakIsExactWhileSlackIsRecalled(t *testing.T) {
	table := &streamTable{}
	table.leases.Store(&map[core.StreamID]*stream{})
	all := testStreams(4)
	table.all.Store(&all)
	var peaks highWater
	bytes := func(n uint64) *core.Block { return &core.Block{Bytes: n, Requested: n} }
	all[1].books.admit(bytes(1000), nil, false, &peaks, table)
	all[2].books.mu.Lock() // a recall comes as far as here
	var group sync.WaitGroup
	group.Go(func() { all[0].books.admit(bytes(1), nil, false, &peaks, table) })
	time.Sleep(5 * time.Millisecond)
	group.Go(func() {
		all[1].books.retire(bytes(1000), false)
		all[3].books.admit(bytes(1000), nil, false, &peaks, table)
	})
	time.Sleep(5 * time.Millisecond)
	all[2].books.mu.Unlock()
	group.Wait()
	var st core.Stats
	peaks.addTo(&st)
	if st.PeakRequested != 1001 || st.PeakBytes != 1001 {
		t.Errorf("the peak is %d of at most 1001 bytes that ever were live", st.PeakRequested)
	}
}

// A free that fails takes back what somebody else has been given meanwhile.
func TestARevivedBlockMayMakeANewPeak(t *testing.T) {
	table := &streamTable{}
	table.leases.Store(&map[core.StreamID]*stream{})
	all := testStreams(1)
	table.all.Store(&all)
	var peaks highWater
	b := &core.Block{Bytes: 100, Requested: 100}
	all[0].books.admit(b, nil, false, &peaks, table)
	all[0].books.retire(b, false)
	all[0].books.admit(b, nil, false, &peaks, table)
	all[0].books.revive(b, false, &peaks, table)
	var st core.Stats
	peaks.addTo(&st)
	if st.PeakRequested != 200 || st.PeakBytes != 200 {
		t.Errorf("200 bytes are live and the peak is %d", st.PeakRequested)
	}
}

// testStreams are streams that are books alone.
func testStreams(n int) []*stream {
	var all []*stream
	for range n {
		all = append(all, &stream{books: new(books)})
	}
	return all
}
