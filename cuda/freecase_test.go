package cuda_test

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// freeCase is blocks of one stream, home, whose frees wait in one state.
type freeCase struct {
	*bench
	slow               *slowDriver
	isolated           bool
	home, other, third *cuda.Lease
	handle             driver.Stream // of home
	adopted            bool
	blocks             []core.Block
	from               string

	mu    sync.Mutex
	heard []core.Generation

	// What keeps the blocks where they are, and ends that.
	tickets    []core.Ticket
	unlock     func()
	endCapture func()
	refused    bool
	pass       func()
	complete   func()     // the uses
	done       chan error // of the free of waitsForStream

	passed, lost   bool // the device is no longer held; it is lost
	poisoned, gone bool // for ever; the stream is given up
	extra          []core.Block
}

// freeKind is what the blocks of a case are.
type freeKind struct{ isolated, adopted bool }

var freeKinds = map[string]freeKind{
	"of the pool": {}, "isolated": {isolated: true},
	"of the pool, adopted stream": {adopted: true}, "isolated, adopted stream": {isolated: true, adopted: true},
}

// newFreeCase brings blocks into a state, by the calls that do so, with the device held
// before their frees.
func newFreeCase(t *testing.T, kind freeKind, state string, change ...func(*teststack.Config)) *freeCase {
	t.Helper()
	c := &freeCase{isolated: kind.isolated, adopted: kind.adopted, from: state}
	if kind.isolated && state != "uses" {
		change = append(change, deviceOrdered) // or the free has no call of the driver's that could be refused
	}
	c.bench, c.slow = newSlowBench(t, change...)
	lent := c.leases(3)
	c.home, c.other, c.third = lent[0], lent[1], lent[2]
	if kind.adopted {
		c.home, _ = c.adopt()
	}
	c.handle = c.home.Handle()
	n := 3
	if state == "stream" {
		n = 1 // of several nobody knows which comes first
	}
	for range n {
		c.blocks = append(c.blocks, c.allocate(c.home))
	}
	c.sync(c.home)
	c.launch(c.other, reads(c.blocks...)) // so that each free has something to come after
	c.sync(c.other)
	c.Async.Subscribe(listener(func(b core.Block) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.heard = append(c.heard, b.ID.Generation)
	}))
	if state != "unmap" {
		c.holdHome()
	}
	freeArrangements[state](c)
	c.in(state)
	return c
}

// holdHome keeps the device from passing anything on home until pass is called.
func (c *freeCase) holdHome() {
	c.Helper()
	release := c.hold(c.home)
	c.passed = false
	c.pass = func() { c.passed = true; release() }
}

func (c *freeCase) allocate(on *cuda.Lease) core.Block {
	c.Helper()
	if c.isolated {
		return c.isolate(on, 256)
	}
	return c.alloc(on, 256)
}

// freeArrangements bring the blocks into each state.
var freeArrangements = map[string]func(*freeCase){
	"launches": func(c *freeCase) {
		for _, l := range []*cuda.Lease{c.other, c.third} {
			c.tickets = append(c.tickets, c.prepare(l, reads(c.blocks...)))
		}
		c.free(c.blocks...)
	},
	"stream": func(c *freeCase) {
		c.unlock = c.Streams.LockStream(c.home.ID())
		c.deallocate()
	},
	"capture": func(c *freeCase) { c.capture(); c.free(c.blocks...) },
	"retry": func(c *freeCase) {
		c.tickets = []core.Ticket{c.prepare(c.other, reads(c.blocks...))}
		c.free(c.blocks...)
		c.refuse()
		c.finishLast()
		equal(c, "failures", c.Async.Stats().Failures, uint64(len(c.blocks)))
	},
	"uses": func(c *freeCase) {
		release := c.hold(c.other)
		c.launch(c.other, reads(c.blocks...))
		c.free(c.blocks...)
		c.complete = func() { release(); must(c, c.Sim.StreamSynchronize(c.other.Handle())) }
	},
	"device": func(c *freeCase) { c.free(c.blocks...) },
	"unmap": func(c *freeCase) {
		c.free(c.blocks...)
		c.refuse()
		c.pass, c.passed = func() {}, true
		c.look(func() { _ = c.Async.ReapPending(ctx) })
	},
}

// deallocate frees the only block in the background, and returns when it is retired.
func (c *freeCase) deallocate() {
	c.done = make(chan error, 1)
	id := c.blocks[0].ID
	go func() { _, err := c.Async.Deallocate(ctx, id); c.done <- err }()
	for c.Async.State(id) == core.Live {
		time.Sleep(10 * time.Microsecond)
	}
}

// capture begins a capture of home, which c.endCapture ends.
func (c *freeCase) capture() {
	c.Helper()
	if c.adopted {
		must(c, c.Sim.StreamBeginCapture(c.handle))
		c.endCapture = func() {
			g, err := c.Sim.StreamEndCapture(c.handle)
			if !c.lost {
				must(c, errors.Join(err, c.Sim.GraphDestroy(g)))
			}
		}
		return
	}
	began, end, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		g, err := c.home.Capture(ctx, "graph", nil, func(driver.Stream) error { close(began); <-end; return nil })
		if err == nil {
			err = g.Close()
		}
		ended <- err
	}()
	select {
	case <-began:
	case err := <-ended:
		c.Fatalf("the capture did not begin: %v", err)
	}
	c.endCapture = func() {
		close(end)
		if err := <-ended; !c.lost {
			must(c, err)
		}
	}
	c.Cleanup(func() { c.clear(&c.endCapture) }) // for a test that has failed
}

// refuse makes the driver refuse the frees, or the unmaps of those that it has passed.
func (c *freeCase) refuse() {
	c.refused = !c.isolated || c.from != "uses"
	switch {
	case c.from == "unmap":
		c.faults.FailEvery(drivertest.MemUnmap, driver.Unknown)
	case c.isolated: // it has no free of the driver's, but waits for the uses elsewhere
		c.faults.FailEvery(drivertest.StreamWait, driver.Unknown)
	default:
		c.faults.FailEvery(drivertest.MemFreeAsync, driver.Unknown)
	}
}

func (c *freeCase) oblige() { c.faults.Clear(); c.refused = false }

// finishLast finishes all launches.
func (c *freeCase) finishLast() {
	c.Helper()
	for len(c.tickets) > 0 {
		c.finishOne()
	}
}

func (c *freeCase) finishOne() {
	c.Helper()
	t := c.tickets[0]
	c.tickets = c.tickets[1:]
	must(c, c.Async.FinishUse(ctx, t))
}

// clear ends an obstacle, if it is there.
func (c *freeCase) clear(obstacle *func()) {
	if end := *obstacle; end != nil {
		*obstacle = nil
		end()
	}
}

// unlockStream lets the free have its stream.
func (c *freeCase) unlockStream() {
	c.clear(&c.unlock)
	if c.done != nil {
		must(c, <-c.done)
		c.done = nil
	}
}

// reap requires an error where the driver refuses what a reap tries.
func (c *freeCase) reap() {
	c.Helper()
	c.look(func() { c.Helper(); c.refusedIf("a reap", c.refused, c.Async.ReapPending(ctx)) })
}

// look looks twice: the first look records the mark behind the frees, and the device has
// passed that when the second comes.
func (c *freeCase) look(once func()) {
	c.Helper()
	once()
	if c.passed && c.endCapture == nil {
		must(c, c.Sim.StreamSynchronize(c.handle))
	}
	once()
}

func (c *freeCase) refusedIf(what string, refused bool, err error) {
	c.Helper()
	if refused != errors.Is(err, core.ErrDriver) || !refused && err != nil {
		c.Errorf("%s: %v, refused by the driver: %v", what, err, refused)
	}
}

// in requires that all blocks are in a state, and everything that follows from it.
func (c *freeCase) in(state string) {
	c.Helper()
	for i, b := range c.blocks {
		if got := c.Async.WaitsFor(b.ID); got != state {
			c.Errorf("block %d is in state %q, want %q", i, got, state)
		}
	}
	st := c.Async.Stats()
	n := uint64(len(c.blocks))
	all := core.Amount{Bytes: 256 * n, Requested: 256 * n, Blocks: n}
	extra := core.Amount{Bytes: 256 * uint64(len(c.extra)), Requested: 256 * uint64(len(c.extra)), Blocks: uint64(len(c.extra))}
	var want struct{ live, pending core.Amount }
	want.live = extra
	switch state {
	case "live":
		want.live = core.Amount{Bytes: all.Bytes + extra.Bytes, Requested: all.Requested + extra.Requested, Blocks: all.Blocks + extra.Blocks}
	case "released":
	default:
		want.pending = all
	}
	if st.Live != want.live || c.extra == nil && st.Pending != want.pending {
		c.Errorf("live %+v, pending %+v, want %+v", st.Live, st.Pending, want)
	}
	if state == "released" {
		c.toldInOrder()
	} else {
		c.toldNothing()
	}
	c.onDevice(state)
}

// toldNothing requires that nobody has heard of one of the blocks.
func (c *freeCase) toldNothing() {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.blocks {
		if slices.Contains(c.heard, b.ID.Generation) {
			c.Errorf("block %v is called released", b.ID)
		}
	}
}

// toldInOrder requires that each block was told once, in the order of the frees.
func (c *freeCase) toldInOrder() {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var of, want []core.Generation
	for _, b := range c.blocks {
		want = append(want, b.ID.Generation)
	}
	for _, g := range c.heard {
		if slices.Contains(want, g) {
			of = append(of, g)
		}
	}
	if !slices.Equal(of, want) {
		c.Errorf("told of %v, want %v", of, want)
	}
}

// onDevice requires what the device must have of the blocks in a state.
func (c *freeCase) onDevice(state string) {
	c.Helper()
	if c.extra != nil || c.lost || c.passed && state == "device" {
		return // others' memory is there too, or nobody knows
	}
	books, n := c.Sim.Books(), len(c.blocks)
	switch {
	case c.isolated && state == "released":
		equal(c, "mappings", books.Mappings, 0)
	case c.isolated:
		equal(c, "mappings", books.Mappings, n)
	case state == "released":
		equal(c, "frees that the device has not passed", books.PendingFrees, 0)
		equal(c, "blocks on the device", books.LiveBlocks, 0)
	case state == "device":
		equal(c, "frees that the device has not passed", books.PendingFrees, uint64(n))
	default:
		equal(c, "frees that the device has not passed", books.PendingFrees, 0)
		equal(c, "blocks on the device", books.LiveBlocks, uint64(n))
	}
}

// end takes all obstacles away: each block must then be released once, and nothing left.
func (c *freeCase) end() {
	c.Helper()
	c.oblige()
	c.clear(&c.endCapture)
	c.unlockStream()
	c.clear(&c.complete)
	c.finishLast()
	if c.Async.State(c.blocks[0].ID) == core.Live {
		c.free(c.blocks...)
	}
	c.pass()
	c.free(c.extra...)
	c.extra = nil
	c.drain()
	freed := c.Async.FreedOn(c.home.ID())
	equal(c, "bytes of frees completed", freed.Completed, freed.Queued)
	if c.poisoned {
		c.in("launches")
	} else {
		c.in("released")
		equal(c, "outstanding", c.Async.Stats().Outstanding(), core.Amount{})
	}
	if c.adopted && !c.gone {
		must(c, c.home.Release())
	}
	if c.adopted {
		must(c, c.Sim.StreamDestroy(c.handle))
	}
}

// tablesOfFrees reads the tables in the comment of freeState: the cells by row and column,
// of each table by the first word of its header.
func tablesOfFrees(t *testing.T) map[string]map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile("freequeue.go")
	must(t, err)
	gap := regexp.MustCompile(`  +`)
	tables := map[string]map[string]map[string]string{}
	var table map[string]map[string]string
	var columns []string
	for line := range strings.Lines(string(text)) {
		row, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "//\t")
		if !ok {
			table = nil
			continue
		}
		cells := gap.Split(row, -1)
		if table == nil {
			columns, table = cells[1:], map[string]map[string]string{}
			tables[cells[0]] = table
			continue
		}
		if len(cells) != len(columns)+1 {
			t.Fatalf("the row of %q has %d cells for %d columns", cells[0], len(cells)-1, len(columns))
		}
		table[cells[0]] = map[string]string{}
		for i, column := range columns {
			table[cells[0]][column] = cells[i+1]
		}
	}
	return tables
}

// eachFreeCell runs a test of each cell of a table, for each kind of block.
func eachFreeCell[F any](t *testing.T, table string, rows map[string]F, test func(t *testing.T, kind freeKind, row F, name, from, cell string)) {
	cells := tablesOfFrees(t)[table]
	if len(cells) != len(rows) {
		t.Errorf("the table has %d rows, the test %d", len(cells), len(rows))
	}
	for name, columns := range cells {
		row, ok := rows[name]
		if !ok {
			t.Errorf("the test does not know the row %q", name)
			continue
		}
		for from, cell := range columns {
			for of, kind := range freeKinds {
				if from == "unmap" && !kind.isolated || strings.Contains(name, "given up") && !kind.adopted || strings.Contains(name, "lost") && kind.adopted {
					continue // only isolated blocks are unmapped, and only adopted streams given up, while there is a device
				}
				t.Run(name+"/"+from+"/"+of, func(t *testing.T) { test(t, kind, row, name, from, cell) })
			}
		}
	}
}
