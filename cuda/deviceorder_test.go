package cuda_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

func deviceOrdered(c *teststack.Config) { c.DeviceOrder = true }

func TestDeviceOrderQueuesWaitsForWhatTheHostHasSeenDone(t *testing.T) {
	for name, options := range map[string][]func(*teststack.Config){"seen": nil, "queued": {deviceOrdered}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, options...)
			s := b.leases(2)
			want := len(options)
			block := b.alloc(s[0], 256)
			b.sync(s[0])
			equal(t, "waits for the allocation", b.launch(s[1], writes(block)).waits, want)
			b.sync(s[1])
			equal(t, "waits for the write", b.launch(s[0], reads(block)).waits, want)
			b.sync(s[0])
			equal(t, "waits of the free", b.freeWaits(block), 0)
		})
	}
}

func TestDeviceOrderRemembersStreamsThatWereGivenUp(t *testing.T) {
	b := newBench(t, deviceOrdered)
	other := b.leases(1)[0]
	l, handle := b.adopt()
	block := b.alloc(l, 256)
	b.launch(l, writes(block))
	b.sync(l)
	b.giveUp(l, handle)
	must(t, b.Runtime.ReapPending(ctx))
	equal(t, "waits for the write", b.launch(other, reads(block)).waits, 1)
	b.free(block)
	b.drain()
}
