package sim

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

const peerBytes = 4096

// peers makes one program for each schedule, on devices 0, 1 and so on.
func peers(t testing.TB, schedules ...Schedule) []*program {
	t.Helper()
	programs := make([]*program, len(schedules))
	for i, s := range schedules {
		d, err := Open(Config{Ordinal: i, Bytes: 64 << 20, Schedule: s})
		must(t, err)
		t.Cleanup(func() { must(t, d.Close()) })
		programs[i] = newProgram(t, d)
	}
	return programs
}

// underEachPair runs a test under every pair of schedules.
func underEachPair(t *testing.T, test func(t *testing.T, a, b *program)) {
	for i, first := range schedules {
		for j, second := range schedules {
			if testing.Short() && (i+j)%len(schedules) != 1 { // each has a turn on each side, and one pair is of the same
				continue
			}
			t.Run(fmt.Sprintf("%v and %v", first, second), func(t *testing.T) {
				both := peers(t, first, second)
				test(t, both[0], both[1])
			})
		}
	}
}

// orderPeers makes later work of to on q wait for the work of from on p.
func orderPeers(p *program, from driver.Stream, q *program, to driver.Stream) {
	p.Helper()
	e := p.event()
	must(p, p.d.EventRecord(e, from))
	must(p, q.d.StreamWaitPeer(to, p.d, e))
	must(p, p.d.EventDestroy(e))
}

func TestPeerConformance(t *testing.T) {
	for i, first := range schedules {
		for j, second := range schedules {
			if testing.Short() && (i+j)%len(schedules) != 1 { // each has a turn on each side, and one pair is of the same
				continue
			}
			t.Run(fmt.Sprintf("%v and %v", first, second), func(t *testing.T) {
				drivertest.PeerConformance(t, func(t *testing.T) (driver.Driver, driver.Driver) {
					both := peers(t, first, second)
					t.Cleanup(func() {
						both[0].wantClean()
						both[1].wantClean()
					})
					return drivertest.NewFaults(both[0].d), drivertest.NewFaults(both[1].d)
				})
			})
		}
	}
}

// Each case leaves a fence out where fence does nothing, and names the device
// whose oracle must see it.
var peerOracleCases = []struct {
	name   string
	want   Kind
	source bool
	run    func(src, dst *program, fence func(p *program, from driver.Stream, q *program, to driver.Stream))
}{
	{"copy before the source was written", Race, true, func(src, dst *program, fence func(*program, driver.Stream, *program, driver.Stream)) {
		peerCopy(src, dst, fence, orderPeers, orderPeers)
	}},
	{"source written before the copy is done", Race, true, func(src, dst *program, fence func(*program, driver.Stream, *program, driver.Stream)) {
		s, to, from, into := peerCopy(src, dst, orderPeers, nil, orderPeers)
		fence(dst, to, src, s)
		src.launch("write", from, peerBytes, s)
		orderPeers(dst, to, src, s)
		src.free(from, s)
		dst.free(into, to)
	}},
	{"source freed before the copy is done", FreeRace, true, func(src, dst *program, fence func(*program, driver.Stream, *program, driver.Stream)) {
		s, to, from, into := peerCopy(src, dst, orderPeers, nil, orderPeers)
		fence(dst, to, src, s)
		src.free(from, s)
		dst.free(into, to)
	}},
	{"destination written through another device's order", Race, false, func(src, dst *program, fence func(*program, driver.Stream, *program, driver.Stream)) {
		s, to, other := src.stream(), dst.stream(), dst.stream()
		from, into := src.alloc(peerBytes, s), dst.alloc(peerBytes, to)
		dst.order(to, other)
		orderPeers(src, s, dst, to)
		must(dst, dst.d.CopyFromPeerAsync(into, src.d, from, peerBytes, to))
		orderPeers(dst, to, src, s)
		fence(src, s, dst, other)
		dst.launch("write", into, peerBytes, other)
		dst.order(other, to)
		dst.free(into, to)
		src.free(from, s)
	}},
}

// peerCopy allocates and writes on src, copies to dst, and, if after is not
// nil, frees both. setup orders what is not under test.
func peerCopy(src, dst *program, before, after, setup func(*program, driver.Stream, *program, driver.Stream)) (s, to driver.Stream, from, into uint64) {
	src.Helper()
	s, to = src.stream(), dst.stream()
	from = src.alloc(peerBytes, s)
	setup(src, s, dst, to)
	src.launch("write", from, peerBytes, s)
	into = dst.alloc(peerBytes, to)
	before(src, s, dst, to)
	must(dst, dst.d.CopyFromPeerAsync(into, src.d, from, peerBytes, to))
	if after != nil {
		after(dst, to, src, s)
		src.free(from, s)
		dst.free(into, to)
	}
	return s, to, from, into
}

func TestOracleSeesAMissingWaitAcrossDevices(t *testing.T) {
	none := func(*program, driver.Stream, *program, driver.Stream) {}
	for _, c := range peerOracleCases {
		t.Run(c.name, func(t *testing.T) {
			underEachPair(t, func(t *testing.T, src, dst *program) {
				c.run(src, dst, none)
				must(t, dst.d.Synchronize())
				if c.source {
					src.wantFinding(c.want)
					dst.wantClean()
				} else {
					src.wantClean()
					dst.wantFinding(c.want)
				}
			})
			underEachPair(t, func(t *testing.T, src, dst *program) {
				c.run(src, dst, orderPeers)
				must(t, dst.d.Synchronize())
				src.wantClean()
				dst.wantClean()
			})
		})
	}
}

// A dropped wait across devices is seen like any other.
func TestDroppedPeerWaitIsFound(t *testing.T) {
	underEachPair(t, func(t *testing.T, src, dst *program) {
		dst.d.DropWaitAt(2) // the first is the setup's
		peerCopy(src, dst, orderPeers, orderPeers, orderPeers)
		must(t, dst.d.Synchronize())
		src.wantFinding(Race)
	})
}

// Order passes through a device that has no part in the data, and through the
// host.
func TestOrderAcrossThreeDevicesAndTheHost(t *testing.T) {
	for _, s := range schedules {
		t.Run(s.String(), func(t *testing.T) {
			all := peers(t, s, FreeRunning(), Seeded(7))
			a, b, c := all[0], all[1], all[2]
			between := b.stream()
			through := func(p *program, from driver.Stream, q *program, to driver.Stream) {
				orderPeers(p, from, b, between)
				orderPeers(b, between, q, to)
			}
			peerCopy(a, c, through, through, through)
			// What the host has seen done on c holds for what it enqueues on a.
			synced := func(p *program, from driver.Stream, _ *program, _ driver.Stream) {
				must(t, p.d.StreamSynchronize(from))
			}
			peerCopy(a, c, synced, synced, synced)
			for _, p := range all {
				p.wantClean()
			}
		})
	}
}

func TestPeerCallsRefuse(t *testing.T) {
	underEachPair(t, func(t *testing.T, a, b *program) {
		s, theirs := a.stream(), b.stream()
		mine, other, e := a.alloc(64, s), b.alloc(64, theirs), b.event()
		for what, c := range map[string]struct {
			err  error
			code int
		}{
			"the destination's address as the source":    {a.d.CopyFromPeerAsync(mine, b.d, mine, 64, s), driver.InvalidValue},
			"the source's address as the destination":    {a.d.CopyFromPeerAsync(other, b.d, other, 64, s), driver.InvalidValue},
			"a stream that does not exist":               {a.d.CopyFromPeerAsync(mine, b.d, other, 64, 99), driver.InvalidHandle},
			"an event that does not exist":               {a.d.StreamWaitPeer(s, b.d, e+99), driver.InvalidHandle},
			"a wait of a stream that does not exist":     {a.d.StreamWaitPeer(99, b.d, e), driver.InvalidHandle},
			"a copy from a device that is not simulated": {a.d.CopyFromPeerAsync(mine, &drivertest.Null{}, other, 64, s), driver.InvalidValue},
		} {
			var err *core.DriverError
			if !errors.As(c.err, &err) || err.Code != c.code {
				t.Errorf("%s: got %v, want code %d", what, c.err, c.code)
			}
		}
		b.d.LoseContext(driver.ECCUncorrectable)
		var err *core.DriverError
		if lost := a.d.StreamWaitPeer(s, b.d, e); !errors.As(lost, &err) || err.Code != driver.InvalidContext || err.Sticky {
			t.Errorf("waiting for a lost peer: got %v", lost)
		}
		must(t, a.d.Synchronize())
	})
}

// Two devices that wait for each other in turn must both come to the end,
// whichever of them is synchronised with or polled.
func TestPeersThatDependOnEachOtherFinish(t *testing.T) {
	underEachPair(t, func(t *testing.T, a, b *program) {
		s, o := a.stream(), b.stream()
		x, y := a.alloc(peerBytes, s), b.alloc(peerBytes, o)
		for range 50 {
			a.launch("write", x, peerBytes, s)
			orderPeers(a, s, b, o)
			must(t, b.d.CopyFromPeerAsync(y, a.d, x, peerBytes, o))
			orderPeers(b, o, a, s)
			must(t, a.d.CopyFromPeerAsync(x, b.d, y, peerBytes, s))
			orderPeers(a, s, b, o)
			if _, err := a.d.StreamQuery(s); err != nil {
				t.Fatal(err)
			}
		}
		for done, start := false, time.Now(); !done; {
			var err error
			done, err = b.d.StreamQuery(o)
			must(t, err)
			if time.Since(start) > time.Minute {
				t.Fatal("polling does not end")
			}
		}
		var both sync.WaitGroup
		for _, p := range []*program{a, b} {
			both.Go(func() { must(t, p.d.Synchronize()) })
		}
		both.Wait()
		a.free(x, s)
		b.free(y, o)
		a.wantClean()
		b.wantClean()
	})
}

// Goroutines on both devices at once, copying both ways.
func TestPeerHammer(t *testing.T) {
	underEachPair(t, func(t *testing.T, a, b *program) {
		var all sync.WaitGroup
		for i := range 4 {
			src, dst := a, b
			if i%2 == 1 {
				src, dst = b, a
			}
			all.Go(func() {
				for range 25 {
					_, to, _, _ := peerCopy(src, dst, orderPeers, orderPeers, orderPeers)
					must(t, dst.d.StreamSynchronize(to))
				}
			})
		}
		all.Wait()
		a.wantClean()
		b.wantClean()
	})
}

// A peer that is closed or lost lets its waiters go, and what they would copy
// from it is an illegal address.
func TestPeerGoesAwayUnderACopy(t *testing.T) {
	underEachPair(t, func(t *testing.T, a, b *program) {
		s, o := a.stream(), b.stream()
		from, into := b.alloc(peerBytes, o), a.alloc(peerBytes, s)
		must(t, a.d.Synchronize())
		release := b.hold(o)
		defer release()
		orderPeers(b, o, a, s)
		must(t, a.d.CopyFromPeerAsync(into, b.d, from, peerBytes, s))
		time.AfterFunc(5*time.Millisecond, func() { must(t, b.d.Close()) })
		var err *core.DriverError
		if lost := a.d.StreamSynchronize(s); !errors.As(lost, &err) || err.Code != driver.IllegalAddress {
			t.Fatalf("got %v, want an illegal address", lost)
		}
	})
}
