package coretest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
)

const (
	kib = uint64(1) << 10
	mib = uint64(1) << 20
	gib = uint64(1) << 30
	pib = uint64(1) << 50
)

// The allocation scenarios follow those that RMM runs over each of its
// resources. Each is run here on the default stream and on a leased one.
var allocationCases = []testCase{
	{name: "zero bytes are refused clearly", run: onEachStream((*trial).zeroBytes)},
	{name: "sizes from 4 B to 1 GiB are aligned", room: 4 * mib, run: onEachStream((*trial).ascendingSizes)},
	{name: "a pebibyte is out of memory", run: onEachStream((*trial).pebibyte)},
	{name: "two live blocks differ", run: onEachStream((*trial).twoLive)},
	{name: "a hundred random sizes", room: 600 * mib, run: onEachStream((*trial).randomSizes)},
	{name: "mixed allocations and frees", room: 600 * mib, run: onEachStream((*trial).mixed)},
	{name: "malformed requests are refused", run: (*trial).malformedRequests},
}

// atMost is a bound of sizes, lowered to the subject's MaxBlock.
func (t *trial) atMost(bytes uint64) uint64 {
	if t.MaxBlock != 0 {
		return min(bytes, t.MaxBlock)
	}
	return bytes
}

// onEachStream makes a case of a scenario. A scenario returns its error, so
// that the thread cases can run it in goroutines too.
func onEachStream(scenario func(*trial, core.StreamID) error) func(*trial) {
	return func(t *trial) {
		for _, stream := range []core.StreamID{core.DefaultStream, t.Streams(t)} {
			t.succeed(scenario(t, stream), fmt.Sprintf("on stream %v", stream))
		}
	}
}

// zeroBytes differs from RMM on purpose: an empty allocation has no address
// that could be told apart, so the resource refuses it and typed slices above
// it handle emptiness themselves.
func (t *trial) zeroBytes(stream core.StreamID) error {
	b, err := t.allocate(core.Request{Stream: stream})
	if !errors.Is(err, core.ErrInvalidRequest) || b != (core.Block{}) {
		return fmt.Errorf("zero bytes: got %+v and %q, want no block and an invalid request", b, fmt.Sprint(err))
	}
	return nil
}

func (t *trial) ascendingSizes(stream core.StreamID) error {
	for _, bytes := range []uint64{4, kib, mib, gib} {
		if t.MaxBlock != 0 && bytes > t.MaxBlock {
			t.Logf("size %d left out: Subject.MaxBlock is %d", bytes, t.MaxBlock)
			continue
		}
		b, err := t.allocate(core.Request{Bytes: bytes, Stream: stream})
		if bytes == gib && outOfRoom(err) {
			t.Logf("a gibibyte was refused: %v", err)
			continue
		}
		if err := errors.Join(err, wellFormed(b, bytes), t.touchEnds(b, stream, byte(bytes>>8))); err != nil {
			return err
		}
		if err := t.tryFree(b); err != nil {
			return err
		}
	}
	return nil
}

func outOfRoom(err error) bool {
	return errors.Is(err, core.ErrOutOfMemory) || errors.Is(err, core.ErrOutOfBudget)
}

func wellFormed(b core.Block, bytes uint64) error {
	if b.ID.Ptr == 0 || b.ID.Ptr%core.DefaultAlign != 0 || b.Requested != bytes || b.Bytes < bytes || b.State != core.Live {
		return fmt.Errorf("asked for %d bytes and got a malformed block %+v", bytes, b)
	}
	return nil
}

// touchEnds writes and reads back the first and last bytes of b, where the
// subject has a device.
func (t *trial) touchEnds(b core.Block, stream core.StreamID, value byte) error {
	if t.Device == nil || b.ID.Generation == 0 {
		return nil
	}
	ends := []uint64{b.ID.Ptr, b.ID.Ptr + b.Requested - 4}
	got := [2][4]byte{}
	err := t.launch(stream, core.ReadWrite, b, func() error {
		var errs error
		for i, ptr := range ends {
			errs = errors.Join(errs, t.Device.Write(stream, ptr, []byte{value, 1, 2, 3}), t.Device.Read(stream, ptr, got[i][:]))
		}
		return errs
	})
	if err := errors.Join(err, t.Device.Sync(stream)); err != nil {
		return err
	}
	for i := range got {
		if want := [4]byte{value, 1, 2, 3}; got[i] != want {
			return fmt.Errorf("wrote % x at %#x and read % x", want, ends[i], got[i])
		}
	}
	return nil
}

func (t *trial) pebibyte(stream core.StreamID) error {
	b, err := t.allocate(core.Request{Bytes: pib, Stream: stream})
	if !outOfRoom(err) || b.ID.Ptr != 0 || b.ID.Generation != 0 {
		return fmt.Errorf("a pebibyte: got %+v and %q, want no block and out of memory or out of budget", b, fmt.Sprint(err))
	}
	text := strings.ToLower(err.Error())
	if !strings.Contains(text, "out of memory") && !strings.Contains(text, "out of budget") {
		return fmt.Errorf("the text does not say what ran out: %q", err.Error())
	}
	return nil
}

func (t *trial) twoLive(stream core.StreamID) error {
	a, errA := t.allocate(core.Request{Bytes: 8, Stream: stream})
	b, errB := t.allocate(core.Request{Bytes: 8, Stream: stream})
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	if overlap(a, b) || a.ID.Generation == b.ID.Generation {
		return fmt.Errorf("two live blocks are the same memory: %v and %v", a.ID, b.ID)
	}
	return errors.Join(t.tryFree(a), t.tryFree(b))
}

func overlap(a, b core.Block) bool {
	return a.ID.Ptr < b.ID.Ptr+b.Requested && b.ID.Ptr < a.ID.Ptr+a.Requested
}

func fixedSeed() *rand.Rand { return rand.New(rand.NewPCG(0x66656e6365, 0x706f7374)) }

func (t *trial) randomSizes(stream core.StreamID) error {
	rng := fixedSeed()
	var live []core.Block
	for range 100 {
		b, err := t.allocSeparate(1+rng.Uint64N(t.atMost(5*mib)), stream, live)
		if err != nil {
			return err
		}
		live = append(live, b)
	}
	for _, b := range live {
		if err := t.tryFree(b); err != nil {
			return err
		}
	}
	return nil
}

// allocSeparate allocates a block and checks that it overlaps none of live.
func (t *trial) allocSeparate(bytes uint64, stream core.StreamID, live []core.Block) (core.Block, error) {
	b, err := t.allocate(core.Request{Bytes: bytes, Stream: stream})
	if err := errors.Join(err, wellFormed(b, bytes)); err != nil {
		return b, err
	}
	for _, other := range live {
		if overlap(b, other) {
			return b, fmt.Errorf("block %v of %d bytes overlaps the live block %v of %d", b.ID, b.Requested, other.ID, other.Requested)
		}
	}
	return b, nil
}

func (t *trial) mixed(stream core.StreamID) error {
	rng := fixedSeed()
	var live []core.Block
	for range 200 {
		if len(live) == 0 || len(live) < 100 && rng.IntN(100) < 53 {
			b, err := t.allocSeparate(1+rng.Uint64N(t.atMost(5*mib)), stream, live)
			if err != nil {
				return err
			}
			live = append(live, b)
			continue
		}
		victim := rng.IntN(len(live))
		if err := t.tryFree(live[victim]); err != nil {
			return err
		}
		live[victim] = live[len(live)-1]
		live = live[:len(live)-1]
	}
	for _, b := range live {
		if err := t.tryFree(b); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) malformedRequests() {
	for what, r := range map[string]core.Request{
		"an alignment of 3":     {Bytes: 64, Align: 3},
		"an alignment of 512":   {Bytes: 64, Align: 512},
		"more requested than 8": {Bytes: 8, Requested: 9},
	} {
		_, err := t.allocate(r)
		t.refused(err, what, core.ErrInvalidRequest)
	}
}
