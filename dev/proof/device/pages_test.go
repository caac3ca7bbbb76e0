package device

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// where the tests map: any address will do.
const where uint64 = 1 << 20

func (d *Device) maps(t *testing.T, page int) driver.MemHandle {
	t.Helper()
	h := must.Get(d.MemCreate(PageBytes))(t)
	if err := errors.Join(d.MemMap(where+uint64(page)*PageBytes, PageBytes, h), d.MemAccess(where+uint64(page)*PageBytes, PageBytes)); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestPagesAreTheirFrames(t *testing.T) {
	d := New()
	first, second := d.maps(t, 0), d.maps(t, 1)
	for what, err := range map[string]error{
		"a frame that is mapped":       d.MemMap(where+2*PageBytes, PageBytes, first),
		"where something is mapped":    d.MemMap(where, PageBytes, must.Get(d.MemCreate(PageBytes))(t)),
		"what is not mapped":           d.MemUnmap(where+2*PageBytes, PageBytes),
		"more than is mapped":          d.MemUnmap(where, 3*PageBytes),
		"access to what is not mapped": d.MemAccess(where+2*PageBytes, PageBytes),
		"two releases":                 errors.Join(d.MemRelease(second), d.MemRelease(second)),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if n := d.Held(); n != 3 {
		t.Errorf("%d frames are held", n)
	}
	if err := d.MemUnmap(where, 2*PageBytes); err != nil || d.Held() != 2 {
		t.Errorf("%v, %d frames are held: the second was released", err, d.Held())
	}
	if err := errors.Join(d.MemMap(where+5*PageBytes, PageBytes, first), d.MemAccess(where+5*PageBytes, PageBytes)); err != nil {
		t.Fatal(err)
	}
	if got := d.cell(where + 5*PageBytes + Unit); got != 1<<1 {
		t.Errorf("the first frame's other half is cell %v elsewhere", got)
	}
}

// hosted is a device with two pages in a row, and a block over half of each.
func hosted(t *testing.T) *Device {
	t.Helper()
	d := New()
	d.Hosted = true
	d.maps(t, 0)
	d.maps(t, 1)
	d.Locate(where+Unit, 2*Unit)
	if err := d.Allocated(1); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestABlockLiesInTheCellsOfItsPages(t *testing.T) {
	d := hosted(t)
	n := d.History.Nodes()[0]
	if n.Kind != oracle.Alloc || n.Cells != 0b0110 || n.Near != 0b1111 {
		t.Errorf("%+v", n)
	}
	d.Block = 1
	d.Locate(where, Unit)
	if err := d.Allocated(2); err != nil {
		t.Fatal(err)
	}
	if n := d.History.Nodes()[1]; n.Cells != 0b0001 || n.Near != 0b0001 {
		t.Errorf("beside a live block: %+v", n)
	}
	d.Block = 2
	d.Locate(where+2*PageBytes, Unit)
	expect.Error(t, d.Allocated(2), ErrNowhere, "a block where nothing is mapped")
}

// TestPagesAreTornFromBlocks unmaps the second page at different times.
func TestPagesAreTornFromBlocks(t *testing.T) {
	for what, c := range map[string]struct {
		do   func(d *Device)
		torn bool
	}{
		"a live block":                        {func(*Device) {}, true},
		"a block that was freed and not used": {func(d *Device) { d.free(t) }, false},
		"work that is not done": {func(d *Device) {
			d.Put(oracle.Node{Kind: oracle.Work, Stream: 2, Writes: 1})
			d.free(t)
		}, true},
		"undeclared work before the free": {func(d *Device) {
			d.Put(oracle.Node{Kind: oracle.Work, Stream: 1})
			d.free(t)
		}, true},
		"work that is done": {func(d *Device) {
			d.Put(oracle.Node{Kind: oracle.Work, Stream: 1, Writes: 1})
			d.free(t)
			d.Execute(1)
		}, false},
	} {
		d := hosted(t)
		c.do(d)
		if err := d.MemUnmap(where+PageBytes, PageBytes); err != nil || d.Torn(0) != c.torn {
			t.Errorf("%s: torn is %v, %v", what, d.Torn(0), err)
		}
	}
}

func (d *Device) free(t *testing.T) {
	t.Helper()
	if err := d.FreedOn(1, 0, false); err != nil {
		t.Fatal(err)
	}
}

// TestAnEventOfAnAllocationStandsForIt records events while the host allocates.
func TestAnEventOfAnAllocationStandsForIt(t *testing.T) {
	d := hosted(t)
	event := must.Get(d.EventCreate())(t)
	other := must.Get(d.EventCreate())(t)
	d.Block = 1
	d.Allocating(1)
	before := d.History.Last(1)
	if err := errors.Join(d.EventRecord(other, 1), d.StreamWait(1, other), d.EventRecord(event, 1)); err != nil {
		t.Fatal(err)
	}
	d.Locate(where, Unit)
	if err := d.Allocated(1); err != nil {
		t.Fatal(err)
	}
	if d.events[event-1] != d.History.Last(1) || d.events[other-1] != before {
		t.Errorf("the events are of #%d and #%d\n%v", d.events[event-1], d.events[other-1], d.History)
	}
}
