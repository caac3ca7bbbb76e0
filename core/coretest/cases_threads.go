package coretest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
)

const threads = 4

var threadCases = []testCase{
	{name: "four goroutines share one stream", room: 4 * 600 * mib, run: (*trial).sharedStream},
	{name: "producer and consumer on the default stream", room: 256 * mib, run: func(t *trial) {
		t.producerConsumer(core.DefaultStream, core.DefaultStream)
	}},
	{name: "producer and consumer on one stream", room: 256 * mib, run: func(t *trial) {
		stream := t.Streams(t)
		t.producerConsumer(stream, stream)
	}},
	{name: "producer and consumer on two streams", room: 256 * mib, run: func(t *trial) {
		t.producerConsumer(t.Streams(t), t.Streams(t))
	}},
	{name: "generations are unique across goroutines", run: (*trial).uniqueGenerations},
}

func (t *trial) sharedStream() {
	stream := t.Streams(t)
	t.together(threads, func(int) error {
		for _, scenario := range []func(*trial, core.StreamID) error{
			(*trial).zeroBytes, (*trial).ascendingSizes, (*trial).pebibyte, (*trial).randomSizes, (*trial).mixed,
		} {
			if err := scenario(t, stream); err != nil {
				return err
			}
		}
		return nil
	})
}

// producerConsumer hands a hundred blocks from one goroutine and stream to
// another: the producer writes each, the consumer checks and frees it.
func (t *trial) producerConsumer(producer, consumer core.StreamID) {
	blocks := make(chan core.Block, 4)
	t.together(2, func(i int) error {
		if i == 0 {
			defer close(blocks)
			return t.produce(producer, blocks)
		}
		return t.consume(consumer, blocks)
	})
}

func (t *trial) produce(stream core.StreamID, blocks chan<- core.Block) error {
	rng := fixedSeed()
	for i := range 100 {
		b, err := t.allocate(core.Request{Bytes: 8 + rng.Uint64N(t.atMost(mib)-8), Stream: stream})
		if err == nil {
			err = t.launch(stream, core.Write, b, func() error { return t.write(stream, b, byte(i)) })
		}
		if err != nil {
			return err
		}
		if err := t.orderByHand(stream); err != nil {
			return err
		}
		blocks <- b
	}
	return nil
}

// orderByHand is what a user of a backend without use tracking must do before
// it hands a block to another stream.
func (t *trial) orderByHand(stream core.StreamID) error {
	if t.tracks() || t.Device == nil {
		return nil
	}
	return t.Device.Sync(stream)
}

// consume takes all blocks, even after an error, so that the producer ends.
func (t *trial) consume(stream core.StreamID, blocks <-chan core.Block) error {
	var errs error
	i := 0
	for b := range blocks {
		got := make([]byte, 8)
		errs = errors.Join(errs,
			t.launch(stream, core.Read, b, func() error { return t.read(stream, b, got) }),
			t.sync(stream), t.tryFree(b))
		if want := bytes.Repeat([]byte{byte(i)}, 8); t.Device != nil && !bytes.Equal(got, want) {
			errs = errors.Join(errs, fmt.Errorf("block %d holds % x, want % x", i, got, want))
		}
		i++
	}
	if i != 100 && errs == nil {
		errs = fmt.Errorf("the producer stopped after %d blocks", i)
	}
	return errs
}

// write, read and sync touch the first 8 bytes of a block, where there is a
// device.
func (t *trial) write(stream core.StreamID, b core.Block, value byte) error {
	if t.Device == nil {
		return nil
	}
	return t.Device.Write(stream, b.ID.Ptr, bytes.Repeat([]byte{value}, 8))
}

func (t *trial) read(stream core.StreamID, b core.Block, dst []byte) error {
	if t.Device == nil {
		return nil
	}
	return t.Device.Read(stream, b.ID.Ptr, dst)
}

func (t *trial) sync(stream core.StreamID) error {
	if t.Device == nil {
		return nil
	}
	return t.Device.Sync(stream)
}

func (t *trial) uniqueGenerations() {
	stream := t.Streams(t)
	perThread := make([][]core.Block, threads)
	t.together(threads, func(i int) error {
		for range 50 {
			b, err := t.allocate(core.Request{Bytes: 64, Stream: stream})
			if err == nil {
				err = t.tryFree(b)
			}
			if err != nil {
				return err
			}
			perThread[i] = append(perThread[i], b)
		}
		return nil
	})
	seen := map[core.Generation]bool{0: true}
	for _, blocks := range perThread {
		last := core.Generation(0)
		for _, b := range blocks {
			t.check(!seen[b.ID.Generation], "generation %v was given out twice", b.ID.Generation)
			t.check(b.ID.Generation > last, "generation %v came after %v", b.ID.Generation, last)
			seen[b.ID.Generation], last = true, b.ID.Generation
		}
	}
}
