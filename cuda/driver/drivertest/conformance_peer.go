package drivertest

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// PeerConformance runs the semantics of the two calls between devices. open
// returns two fresh drivers of different devices that can reach each other's
// memory; the suite does not close them. It needs about 64 MiB on each.
func PeerConformance(t *testing.T, open func(t *testing.T) (a, b driver.Driver)) {
	for name, run := range map[string]func(a, b *suite){
		"copy there and back": peerCopyThereAndBack,
		"cross-device wait":   peerWait,
		"empty copy":          peerEmptyCopy,
		"invalid handles":     peerInvalidHandles,
	} {
		t.Run(name, func(t *testing.T) {
			a, b := open(t)
			run(&suite{T: t, d: a}, &suite{T: t, d: b})
		})
	}
}

// after makes later work of to on this device wait for the work of from on
// peer's.
func (s *suite) after(peer *suite, from, to driver.Stream) {
	s.Helper()
	e := peer.event()
	s.must(peer.d.EventRecord(e, from))
	s.must(s.d.StreamWaitPeer(to, peer.d, e))
	s.must(peer.d.EventDestroy(e))
}

func peerCopyThereAndBack(a, b *suite) {
	here, there := a.stream(), b.stream()
	x, y := a.alloc(heavy, here), b.alloc(heavy, there)
	for round := byte(1); round < 6; round++ {
		a.must(a.d.MemsetAsync(x, round, heavy, here))
		b.after(a, here, there)
		b.must(b.d.CopyFromPeerAsync(y, a.d, x, heavy, there))
		a.after(b, there, here)
		a.must(a.d.MemsetAsync(x, 0xee, heavy, here))
		a.must(a.d.CopyFromPeerAsync(x, b.d, y, heavy, here))
		b.after(a, here, there)
		a.wantAll(a.read(x, heavy, here), round)
	}
	a.must(a.d.MemFreeAsync(x, here))
	b.must(b.d.MemFreeAsync(y, there))
	a.must(a.d.Synchronize())
	b.must(b.d.Synchronize())
}

// peerWait: the record current at the call is what counts, and an event never
// recorded is none.
func peerWait(a, b *suite) {
	here, there, idle := a.stream(), b.stream(), b.stream()
	x, y := a.alloc(heavy, here), b.alloc(heavy, there)
	e := b.event()
	a.must(a.d.StreamWaitPeer(here, b.d, e))
	b.must(b.d.MemsetAsync(y, 7, heavy, there))
	b.must(b.d.EventRecord(e, there))
	a.must(a.d.StreamWaitPeer(here, b.d, e))
	b.must(b.d.EventRecord(e, idle))
	a.must(a.d.CopyFromPeerAsync(x, b.d, y, heavy, here))
	a.wantAll(a.read(x, heavy, here), 7)
	b.must(b.d.EventDestroy(e))
	a.must(a.d.MemFreeAsync(x, here))
	b.must(b.d.MemFreeAsync(y, there))
	a.must(a.d.Synchronize())
	b.must(b.d.Synchronize())
}

func peerEmptyCopy(a, b *suite) {
	here, there := a.stream(), b.stream()
	x, y := a.alloc(64, here), b.alloc(64, there)
	a.must(a.d.CopyFromPeerAsync(x, b.d, y, 0, here))
	a.must(a.d.MemFreeAsync(x, here))
	b.must(b.d.MemFreeAsync(y, there))
	a.must(a.d.Synchronize())
}

func peerInvalidHandles(a, b *suite) {
	a.wantCode(a.d.StreamWaitPeer(a.stream(), b.d, noEvent), driver.InvalidHandle)
	a.wantCode(a.d.StreamWaitPeer(a.stream(), new(Null), b.event()), driver.InvalidValue)
}
