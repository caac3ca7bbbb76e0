package transcript

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/device"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
)

const blockBytes = 256

var ctx = context.Background()

// runner takes the steps on the production code, of one device or two.
type runner struct {
	names
	*Transcript
	here, peer *side
	leases     map[uint8]*cuda.Lease
	blocks     map[uint8]*cuda.Slice[byte]
	launches   map[string]*prepared
	made       [][]effect
}

// side is one device.
type side struct {
	*proof.Runtime
	device *device.Device
	memory *cuda.MemoryManager
}

// prepared is a launch that was prepared.
type prepared struct {
	*step
	node   oracle.Node
	ticket core.Ticket
}

// run is what each line leads to in the production code, and what it made in whole. All
// must be well, too, in the oracle's judgement of what is on the streams of one
// device. The devices are shown to look before.
func (t *Transcript) run(look func(here, peer *device.Device)) (made [][]effect, total string, err error) {
	r, err := t.newRunner()
	if err != nil {
		return nil, "", err
	}
	look(r.here.device, r.peer.device)
	if err := r.takeAll(0, len(t.steps)); err != nil {
		return nil, "", err
	}
	here, peer := r.here.device.Calls, r.peer.device.Calls
	total = fmt.Sprintf(totals+"%d, records: %d", here.Waits+peer.Waits, here.Records+peer.Records)
	if v := r.history().Judge(); v.Bad() && !t.has("copy", "") {
		return nil, "", fmt.Errorf("%s\n%v", v.Why, r.history())
	}
	return r.made, total, r.close()
}

func (t *Transcript) newRunner() (*runner, error) {
	r := &runner{Transcript: t, leases: map[uint8]*cuda.Lease{}, blocks: map[uint8]*cuda.Slice[byte]{}, launches: map[string]*prepared{}, made: make([][]effect, len(t.steps))}
	r.streams = map[uint8]string{}
	here := device.New()
	var err error
	if r.here, err = newSide(here, t.has("device order", "")); err != nil {
		return nil, err
	}
	if r.peer, err = newSide(device.NewPeer(here), false); err != nil {
		return nil, err
	}
	for s := range uint8(len(streams)) {
		if r.leases[s], err = r.lease(s); err != nil {
			return nil, err
		}
		r.streams[uint8(r.leases[s].Handle())] = streamName(s)
	}
	return r, nil
}

func newSide(d *device.Device, deviceOrder bool) (*side, error) {
	d.Forgetful = deviceOrder
	s := &side{device: d}
	var err error
	if s.Runtime, err = proof.NewRuntime(d, proof.DriverPool, cuda.StreamPoolConfig{DeviceOrder: deviceOrder}); err != nil {
		return nil, err
	}
	runtime, err := core.NewRuntime(s.Backend, nil)
	if err != nil {
		return nil, err
	}
	s.memory, err = cuda.NewMemoryManager(d, s.Streams, runtime)
	return s, err
}

func (r *runner) history() *oracle.History { return r.here.device.History }

func (r *runner) side(stream uint8) *side {
	if stream >= peers {
		return r.peer
	}
	return r.here
}

func (r *runner) lease(stream uint8) (*cuda.Lease, error) {
	of := r.side(stream)
	if !r.has("give up", "") {
		return of.Streams.Acquire(ctx, "transcript")
	}
	const special = 2 // the last of the handles that name default streams
	handle, err := of.device.StreamCreate()
	for err == nil && handle <= special {
		handle, err = of.device.StreamCreate()
	}
	if err != nil {
		return nil, err
	}
	return of.Streams.Adopt(handle, "transcript")
}

// takeAll takes some of the steps.
func (r *runner) takeAll(from, to int) error {
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
func (r *runner) capture(s *step, from, to int) (end int, err error) {
	for end = from; end < to && (r.steps[end] == nil || r.steps[end].verb != "end capture"); end++ {
	}
	graph, err := r.leases[s.stream].Capture(ctx, "transcript", nil, func(driver.Stream) error { return r.takeAll(from, end) })
	if err != nil {
		return end, err
	}
	return end, graph.Close()
}

func (r *runner) handle(s uint8) uint8 { return uint8(r.leases[s].Handle()) }

func (r *runner) take(s *step) (refused []effect, err error) {
	d := r.side(s.stream).device
	switch s.verb {
	case "alloc":
		d.Op, d.Block = r.operation("alloc "+blockName(s.block)), s.block
		b, err := cuda.Alloc[byte](ctx, r.side(s.stream).memory, blockBytes, cuda.AllocOptions{Stream: r.leases[s.stream].ID()})
		if err != nil {
			return refusal(s, err)
		}
		r.blocks[s.block] = b
	case "launch", "prepare":
		if refused, err = r.prepare(s); err != nil || len(refused) > 0 || s.verb == "prepare" {
			return refused, err
		}
		return r.finish(s.launch)
	case "finish":
		return r.finish(s.launch)
	case "abort":
		return nil, r.side(r.launches[s.launch].stream).Backend.AbortUse(ctx, r.launches[s.launch].ticket)
	case "use":
		r.put(oracle.Node{Stream: r.handle(s.stream), Op: r.operation("the use of " + blockName(s.block)), Writes: 1 << s.block, Unfenced: true}, oracle.Begin, oracle.Work, oracle.End)
		return nil, r.side(s.stream).Backend.RecordUse(ctx, r.block(s.block), r.leases[s.stream].ID())
	case "free":
		b := r.blocks[s.block]
		delete(r.blocks, s.block)
		return nil, b.Free(ctx)
	case "synchronize":
		d.Execute(r.handle(s.stream))
		return nil, r.side(s.stream).Streams.Synchronize(ctx, r.leases[s.stream].ID())
	case "complete":
		d.Execute(r.handle(s.stream))
	case "reap":
		return nil, r.here.Backend.ReapPending(ctx)
	case "give up":
		r.put(oracle.Node{Stream: r.handle(s.stream), Op: r.operation("the end of " + streamName(s.stream))}, oracle.Last)
		l := r.leases[s.stream]
		delete(r.leases, s.stream)
		return nil, l.Release()
	case "copy":
		d.Op, d.Block = r.operation("the copy to "+blockName(s.block)), s.block
		r.peer.device.Op = d.Op
		return nil, cuda.CopyFromPeer(ctx, r.blocks[s.block], r.leases[s.stream].ID(), r.blocks[s.source], r.leases[s.from].ID())
	case "refuse":
		d.Refuse = true
	}
	return nil, nil
}

func (r *runner) block(b uint8) core.BlockID { return r.blocks[b].Use(core.Read).Block }

// put puts nodes of the host's own on a stream.
func (r *runner) put(n oracle.Node, kinds ...oracle.Kind) {
	for _, n.Kind = range kinds {
		r.here.device.Put(n)
	}
}

// refusal is that of a step, if it is for a stream or a block that is in use.
func refusal(s *step, err error) ([]effect, error) {
	var misuse *core.StreamMisuseError
	if !errors.As(err, &misuse) {
		return nil, err
	}
	switch {
	case misuse.Capturing:
		return []effect{said("refused: %s is capturing", streamName(s.stream))}, nil
	case misuse.Holder != nil:
		return []effect{said("refused: launch %s is open", misuse.Holder.Launch)}, nil
	}
	return nil, err
}

func (r *runner) prepare(s *step) ([]effect, error) {
	var uses []core.Use
	for b := range uint8(oracle.MaxBlocks) {
		switch {
		case s.writes>>b&1 != 0:
			uses = append(uses, core.Use{Block: r.block(b), Access: core.Write})
		case s.reads>>b&1 != 0:
			uses = append(uses, core.Use{Block: r.block(b), Access: core.Read})
		}
	}
	n := oracle.Node{Stream: r.handle(s.stream), Op: r.operation("launch " + s.launch), Reads: s.reads, Writes: s.writes, Aborted: r.has("abort", s.launch)}
	of := r.side(s.stream)
	of.device.Op, of.device.Aborted = n.Op, n.Aborted
	t, err := of.Backend.PrepareUse(ctx, core.UseRequest{Stream: r.leases[s.stream].ID(), Launch: s.launch, Uses: uses})
	of.device.Aborted = false
	if err != nil {
		return refusal(s, err)
	}
	r.put(n, oracle.Begin)
	r.launches[s.launch] = &prepared{s, n, t}
	return nil, nil
}

func (r *runner) finish(launch string) ([]effect, error) {
	l := r.launches[launch]
	r.put(l.node, oracle.Work, oracle.End)
	of := r.side(l.stream)
	refusing := of.device.Refuse
	err := of.Backend.FinishUse(ctx, l.ticket)
	if refusing && errors.Is(err, core.ErrDriver) {
		return []effect{said("the host waits for %s", streamName(l.stream))}, nil
	}
	return nil, err
}

// close looks whether everything comes back.
func (r *runner) close() (err error) {
	if len(r.blocks) > 0 {
		return errors.New("blocks are left: free them all")
	}
	for _, of := range []*side{r.here, r.peer} {
		of.device.Finish()
		err = errors.Join(err, of.Backend.ReapPending(ctx))
		s := of.Backend.Stats()
		err = errors.Join(err, proof.CheckBooks(&s, s.Failures)) // refused records are failures
	}
	r.history().Reset() // streams are closed at the same time, and must find nothing to note
	for l := range maps.Values(r.leases) {
		err = errors.Join(err, l.Release())
	}
	for _, of := range []*side{r.here, r.peer} {
		err = errors.Join(err, of.Backend.Close(ctx), of.Streams.Close(ctx))
		if n := of.device.Events(); n != 0 {
			err = errors.Join(err, fmt.Errorf("%d events are left", n))
		}
	}
	return err
}
