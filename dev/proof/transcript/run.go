package transcript

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/device"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
)

// run takes the steps on the production code, of one device and its peer.
type run struct {
	*Transcript
	letters
	sides [2]*proof.Runner
	made  [][]effect
}

// run is what each line leads to in the production code, and what it made in whole. All
// must be well, too, in the oracle's judgement of what is on the streams of one
// device. The devices are shown to look before.
func (t *Transcript) run(look func(here, peer *device.Device)) (made [][]effect, total string, err error) {
	r := &run{Transcript: t, letters: letters{operations: t.names, streams: map[uint8]string{}}, made: make([][]effect, len(t.steps))}
	here := device.New()
	for i, cfg := range []proof.Config{{Streams: int(peers), Device: here, DeviceOrder: t.has("device order")}, {Streams: len(streams) - int(peers), Device: device.NewPeer(here)}} {
		cfg.Names = t.names
		if r.sides[i], err = proof.NewRunner(cfg); err == nil && t.program.GivesUp() && i == 0 {
			err = r.sides[i].Adopt()
		}
		if err != nil {
			return nil, "", err
		}
	}
	for s := range uint8(len(streams)) {
		side, stream := r.side(s)
		r.streams[side.Handle(stream)] = streamName(s)
	}
	peer := r.sides[1].Device()
	look(here, peer)
	if err := r.takeAll(0, len(t.steps)); err != nil {
		return nil, "", err
	}
	total = fmt.Sprintf(totals+"%d, records: %d", here.Calls.Waits+peer.Calls.Waits, here.Calls.Records+peer.Calls.Records)
	if v := here.History.Judge(); v.Bad() && !t.has("copy") {
		return nil, "", fmt.Errorf("%s\n%v", v.Why, here.History)
	}
	for _, side := range r.sides {
		if side.Live() != 0 {
			err = errors.Join(err, errors.New("blocks are left: free them all"))
		}
		err = errors.Join(err, side.Settle())
	}
	return r.made, total, errors.Join(err, r.sides[0].Close(), r.sides[1].Close())
}

// side is the runner of a stream, and the number that it has there.
func (r *run) side(stream uint8) (*proof.Runner, uint8) {
	if stream >= peers {
		return r.sides[1], stream - peers
	}
	return r.sides[0], stream
}

func (r *run) history() *oracle.History { return r.sides[0].History() }

// takeAll takes some of the steps.
func (r *run) takeAll(from, to int) error {
	for i := from; i < to; i++ {
		s := r.steps[i]
		switch {
		case s == nil:
		case s.verb == "capture":
			end, err := r.capture(s, i+1, to)
			if err != nil {
				return err
			}
			i = end
		default:
			before := r.history().Len()
			refused, err := r.take(s)
			if err != nil {
				return fmt.Errorf("%q: %w", s.text, err)
			}
			r.made[i] = append(r.since(r.history(), before), refused...)
		}
	}
	return nil
}

// capture takes steps while a stream captures, and returns the one that ends that.
func (r *run) capture(s *step, from, to int) (end int, err error) {
	for end = from; end < to && (r.steps[end] == nil || r.steps[end].verb != "end capture"); end++ {
	}
	side, stream := r.side(s.stream)
	graph, err := side.Lease(stream).Capture(context.Background(), "transcript", nil, func(driver.Stream) error { return r.takeAll(from, end) })
	if err != nil {
		return end, err
	}
	return end, graph.Close()
}

func (r *run) take(s *step) (refused []effect, err error) {
	if s.verb == "copy" {
		return nil, r.copy(s)
	}
	for _, phase := range s.phases {
		side, stream := r.side(s.stream)
		o := r.program[s.op]
		o.Stream = stream
		err := side.Take(o, proof.Step{Op: s.op, Phase: phase})
		var misuse *core.StreamMisuseError
		switch {
		case !errors.As(err, &misuse):
		case misuse.Capturing:
			if s.verb == "alloc" {
				side.Excuse(err) // which counts
			}
			return []effect{said("refused: %s is capturing", streamName(s.stream))}, nil
		case misuse.Holder != nil:
			return []effect{said("refused: %s is open", misuse.Holder.Launch)}, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// handed is a resource whose next block is there already.
type handed struct {
	core.Resource
	block core.Block
}

// Allocate returns the block.
func (h *handed) Allocate(context.Context, core.Request) (core.Block, error) { return h.block, nil }

// slice is one of all of a block, and a lease of a stream of its device.
func (r *run) slice(block, stream uint8) (*cuda.Slice[byte], core.StreamID, error) {
	side, stream := r.side(stream)
	b := side.Block(block)
	runtime, err := core.NewRuntime(&handed{side.Backend, b}, nil)
	if err != nil {
		return nil, 0, err
	}
	m, err := cuda.NewMemoryManager(side.Device(), side.Streams, runtime)
	if err != nil {
		return nil, 0, err
	}
	lease := side.Lease(stream).ID()
	all, err := cuda.Alloc[byte](context.Background(), m, int(b.Bytes), cuda.AllocOptions{Stream: lease})
	return all, lease, err
}

func (r *run) copy(s *step) error {
	for _, side := range r.sides {
		side.Device().Begin(device.Call{Op: int16(s.op), Block: s.block})
	}
	to, onto, err := r.slice(s.block, s.stream)
	if err != nil {
		return err
	}
	from, of, err := r.slice(s.source, s.from)
	if err != nil {
		return err
	}
	return cuda.CopyFromPeer(context.Background(), to, onto, from, of)
}
