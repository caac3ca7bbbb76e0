package stackconformance_test

import (
	"maps"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// A fault is one way to spoil a stretch of work. Inject arms it; heal ends it,
// and is called once, by whoever finds the work done or stuck. happened reports
// whether it came to pass: a fault that did not proves nothing.
type fault struct {
	name     string
	inject   func(*scene) (heal func())
	happened func(*scene) bool
	// poisons: blocks are left that nothing gives back. loses: the device is
	// lost, so that this is its runtime's last.
	poisons, loses bool
	// blocks: work may be stuck until it is healed.
	blocks bool
	// impossible: this runtime never makes the call.
	impossible bool
}

// A kind makes the fault for a scene, just before it is injected.
type kind func(*scene) fault

// byDevice are the faults that the simulated device itself can inject, by the
// method that does it. TestEveryFaultOfTheDeviceIsHere compares them with what
// the device has.
var byDevice = map[string]kind{
	"OutOfMemoryAt": func(s *scene) fault {
		n := s.within(40)
		return s.after("out of memory", n, func() { s.device.OutOfMemoryAt(n) }, func() { s.device.OutOfMemoryAt(0) },
			drivertest.MemAlloc, drivertest.MemAllocAsync, drivertest.HostAlloc, drivertest.MemCreate)
	},
	"NeverReadyAt": func(s *scene) fault {
		n := s.within(60)
		f := s.after("an event that is not ready before it is let go", n, func() { s.device.NeverReadyAt(n) }, func() {
			s.device.NeverReadyAt(0)
			s.device.ReleaseEvents()
		}, drivertest.EventRecord)
		f.blocks = true
		return f
	},
	"DropWaitAt": func(s *scene) fault {
		n := s.within(60)
		return s.after("a dropped wait", n, func() { s.device.DropWaitAt(n) }, func() { s.device.DropWaitAt(0) }, drivertest.StreamWait)
	},
	"DropWaits": func(s *scene) fault {
		return s.after("no wait reaches the device", 1, func() { s.device.DropWaits(true) }, func() { s.device.DropWaits(false) }, drivertest.StreamWait)
	},
	"SlowStream": func(s *scene) fault {
		slow := s.anyStream()
		set := func(delay time.Duration) func() { return func() { s.must(s.device.SlowStream(slow.Handle(), delay)) } }
		return s.onStream("a slow stream", slow, set(time.Millisecond), set(0))
	},
	"Hold": func(s *scene) fault {
		held := s.anyStream()
		var release func()
		f := s.onStream("a stalled stream", held, func() {
			var err error
			release, err = s.device.Hold(held.Handle())
			s.must(err)
		}, func() { release() })
		f.blocks = true
		return f
	},
	"LoseContext": func(s *scene) fault {
		at, done := s.faults.Total()+s.within(100), make(chan struct{})
		return lost("a lost context", func() {
			go func() {
				defer close(done)
				for s.faults.Total() < at {
					runtime.Gosched()
				}
				s.device.LoseContext(driver.IllegalAddress)
			}()
		}, func() { <-done })
	},
	"StickyAt": func(s *scene) fault {
		n := s.within(200)
		return lost("a sticky error", func() { s.device.StickyAt(n, driver.IllegalAddress) }, func() {})
	},
}

// The device's methods that inject nothing, without a kernel that faults or at all, or end what another injects.
var harmless = []string{"BlockBegins", "BlockEnds", "BlockIsOwned", "BlockIsWithheld", "Books", "Calls",
	"FalseSuccess", "FindingCount", "Findings", "HostTime", "LaunchBegins", "LaunchEnds", "RegisterModule",
	"ReleaseEvents", "ResetFindings", "String", "UseRecorded", "WatchFaults"}

func TestEveryFaultOfTheDeviceIsHere(t *testing.T) {
	device, contract := reflect.TypeFor[*sim.Device](), reflect.TypeFor[driver.Driver]()
	for m := range device.Methods() {
		_, ofDriver := contract.MethodByName(m.Name)
		if _, fault := byDevice[m.Name]; !ofDriver && !fault && !slices.Contains(harmless, m.Name) {
			t.Errorf("sim.Device.%s is new: if it injects a fault, give it an entry in byDevice, otherwise name it in harmless", m.Name)
		}
	}
	for name := range byDevice {
		if _, ok := device.MethodByName(name); !ok {
			t.Errorf("sim.Device.%s is gone", name)
		}
	}
}

// outside are the methods that this work never calls, or only when a runtime is
// opened or closed or has failed otherwise, or, for HostAlloc and what times launches, not each time; a
// module that cannot be unloaded stays, and is not loaded again. The sweeps of package cuda and of the root package make them fail.
var outside = []drivertest.Method{
	drivertest.Properties, drivertest.MemInfo, drivertest.Synchronize, drivertest.Close,
	drivertest.MemAlloc, drivertest.MemFree, drivertest.HostAlloc, drivertest.HostFree,
	drivertest.CopyFromPeerAsync, drivertest.StreamWaitPeer, drivertest.PoolCreate, drivertest.PoolDestroy,
	drivertest.ModuleUnload, drivertest.StreamDestroy, drivertest.StreamQuery, drivertest.StreamSynchronize, drivertest.EventDestroy,
	drivertest.StreamBeginCapture, drivertest.StreamEndCapture, drivertest.GraphLaunch, drivertest.GraphDestroy, drivertest.TimingEventCreate, drivertest.EventElapsed,
}

// failing makes one call of a method fail, one of as many as the work made when
// nothing was wrong.
func failing(m drivertest.Method) kind {
	return func(s *scene) fault {
		failed, n := s.faults.Failed(m), s.within(max(1, min(5, s.calls[m])))
		return fault{
			name:       "a failing " + string(m),
			inject:     func(s *scene) func() { s.faults.FailMethod(m, n, driver.Unknown); return s.faults.Clear },
			happened:   func(s *scene) bool { return s.faults.Failed(m) > failed },
			impossible: s.calls[m] == 0 && (!s.maps || !slices.Contains(mapping, m)),
		}
	}
}

// unfenceable makes an event impossible to record and its stream impossible to
// synchronise, so that what a launch used is poisoned.
func unfenceable(s *scene) fault {
	n := s.within(30)
	return fault{
		name: "a launch that cannot be fenced",
		inject: func(s *scene) func() {
			for i := range uint64(3) { // or it may be one that only times the launch
				s.faults.FailMethod(drivertest.EventRecord, n+i, driver.Unknown)
			}
			s.faults.FailEvery(drivertest.StreamSynchronize, driver.Unknown)
			return s.faults.Clear
		},
		happened: func(s *scene) bool { return s.rt.Stats().Poisoned > 0 },
		poisons:  true,
	}
}

// tooLittle lowers the budget below what the work needs.
func tooLittle(s *scene) fault {
	refused := s.rt.Stats().Refusals
	return fault{
		name: "a budget that is too small",
		inject: func(s *scene) func() {
			s.rt.Budget().SetLimit(s.rt.Stats().Charged + s.within(16<<10))
			return func() { s.rt.Budget().SetLimit(limit) }
		},
		happened: func(s *scene) bool { return s.rt.Stats().Refusals > refused },
	}
}

// after is a fault that has happened when the device was asked n more times for
// one of methods.
func (s *scene) after(name string, n uint64, arm, heal func(), methods ...drivertest.Method) fault {
	calls := func() (sum uint64) {
		for _, m := range methods {
			sum += s.faults.Calls(m)
		}
		return sum
	}
	before := calls()
	return fault{
		name:     name,
		inject:   func(*scene) func() { arm(); return heal },
		happened: func(*scene) bool { return calls() >= before+n },
	}
}

// onStream is a fault that has happened when residents have used a stream.
func (s *scene) onStream(name string, l *cuda.Lease, arm, heal func()) fault {
	before := s.used[l.ID()]
	return fault{
		name:     name,
		inject:   func(*scene) func() { arm(); return heal },
		happened: func(s *scene) bool { return s.used[l.ID()] > before },
	}
}

func lost(name string, arm, heal func()) fault {
	return fault{
		name:     name,
		inject:   func(*scene) func() { arm(); return heal },
		happened: func(s *scene) bool { return s.device.Synchronize() != nil },
		loses:    true,
	}
}

// kinds lists every fault there is. Where memory is unmapped, which takes long,
// the methods of other memory are left to the other modes.
func kinds(guard string) []kind {
	all := []kind{unfenceable, tooLittle}
	for _, name := range slices.Sorted(maps.Keys(byDevice)) {
		all = append(all, byDevice[name])
	}
	for _, m := range drivertest.Methods() {
		if !slices.Contains(outside, m) && (slices.Contains(mapping, m) || guard != unmapping) {
			all = append(all, failing(m))
		}
	}
	return all
}

var mapping = []drivertest.Method{drivertest.MemReserve, drivertest.MemUnreserve, drivertest.MemCreate, drivertest.MemRelease,
	drivertest.MemMap, drivertest.MemAccess, drivertest.MemUnmap}
