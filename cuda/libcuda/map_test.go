package libcuda_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

func TestTheGranularityIsTheDriversAnswer(t *testing.T) {
	f := newFake(t)
	p, err := f.open().Properties()
	must(t, err)
	equal(t, "granularity", p.MapGranularity, 2<<20)
}

func TestMemoryIsMappedOnTheDeviceThatWasOpened(t *testing.T) {
	f := newFake(t)
	d, err := f.load().Open(1)
	must(t, err)
	b := &bench{fake: f, d: d}
	must(t, b.mapOnce())
	equal(t, "the memory's device", f.arg("cuMemCreate", 4), 1)
	equal(t, "the device that may touch it", f.arg("cuMemSetAccess", 5), 1)
	must(t, d.Close())
	equal(t, "books", f.books(), [11]uint64{})
}

// A device that maps nothing works without: at its own word, and where the
// driver refuses the question.
func TestADeviceThatMapsNothingSaysSo(t *testing.T) {
	refusals := map[string]func(*fake){
		"no such attribute": func(f *fake) { f.set("vmm", 0) },
		"not supported":     func(f *fake) { f.fail("cuMemGetAllocationGranularity", 1, driver.NotSupported) },
		"not permitted":     func(f *fake) { f.fail("cuMemGetAllocationGranularity", 1, driver.NotPermitted) },
	}
	for name, refuse := range refusals {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			refuse(f)
			d := f.open()
			p, err := d.Properties()
			must(t, err)
			equal(t, "granularity", p.MapGranularity, 0)
			calls := map[string]error{
				"cuMemAddressReserve": second(d.MemReserve(mapBytes)), "cuMemAddressFree": d.MemUnreserve(1, mapBytes),
				"cuMemCreate": second(d.MemCreate(mapBytes)), "cuMemRelease": d.MemRelease(1),
				"cuMemMap": d.MemMap(1, mapBytes, 1), "cuMemSetAccess": d.MemAccess(1, mapBytes), "cuMemUnmap": d.MemUnmap(1, mapBytes),
			}
			for op, err := range calls {
				if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), op) {
					t.Errorf("%s: %v", op, err)
				}
				equal(t, "calls of "+op, f.calls(op), 0)
			}
		})
	}
}

func TestAFailedQuestionForTheGranularityFailsTheOpening(t *testing.T) {
	f := newFake(t)
	f.fail("cuMemGetAllocationGranularity", 1, driver.Unknown)
	_, err := f.load().Open(0)
	fails(t, err, "cuMemGetAllocationGranularity", driver.Unknown)
	equal(t, "books", f.books(), [11]uint64{})
}
