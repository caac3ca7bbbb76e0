package proof

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/dev/proof/device"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

var ctx = context.Background()

// What else can be wrong than the order of things.
var (
	// ErrBooks: when all is freed and done, the books say otherwise.
	ErrBooks = errors.New("the books are wrong at the end")
	// ErrEvents: when all is closed, some events were not given back.
	ErrEvents = errors.New("events are left when all is closed")
	// ErrAnswer: a call was refused that must not be, or was not that must be.
	ErrAnswer = errors.New("a call was answered wrongly")
	// ErrEarly: the listeners were told of a block too early.
	ErrEarly = errors.New("a block is called reusable before the device has executed its free, or, where blocks are released in order, before that is queued")
	// ErrTorn: a block was unmapped under the device's hands.
	ErrTorn = errors.New("a block is unmapped before the device has done what uses it")
)

// Config says over what programs are run.
type Config struct {
	Streams int
	Over    Memory
	// DeviceOrder is that of [cuda.StreamPoolConfig]: to the oracle, too, what the host has seen done
	// orders nothing.
	DeviceOrder bool
	// Layers are around the backend.
	Layers []core.Layer
}

// Runner runs programs on the production code, over a device that writes down
// what arrives there. It is not safe for concurrent use.
type Runner struct {
	*Runtime
	config Config
	device *device.Device
	// resource is the outermost layer.
	resource core.Resource
	leases   []*cuda.Lease
	handles  []uint8
	adopting bool
	// pool is what else there is of a runtime with a pool of its own.
	pool *hosted

	// early is the first block that was said to be reusable before the
	// device had executed its free.
	early error
	// refused is how many records the device has refused in this run,
	// failures what the books had of failures before it.
	refused, failures uint64

	blocks  []core.Block
	live    []bool
	tickets []core.Ticket
	uses    []core.Use
}

// NewRunner returns a runner. It must be closed.
func NewRunner(cfg Config) (*Runner, error) {
	r := &Runner{config: cfg, device: device.New()}
	r.device.Forgetful, r.device.Hosted = cfg.DeviceOrder, cfg.Over.IsOwnPool()
	var err error
	if r.Runtime, err = NewRuntime(r.device, cfg.Over, cuda.StreamPoolConfig{Max: max(cfg.Streams, cuda.DefaultMaxStreams), DeviceOrder: cfg.DeviceOrder}); err != nil {
		return nil, err
	}
	if cfg.Over.IsOwnPool() {
		r.pool = newHosted(r.device, r.Backend)
	}
	r.Backend.Subscribe(r)
	if r.resource, err = core.Chain(r.Front, cfg.Layers...); err != nil {
		return nil, err
	}
	r.leases, r.handles = make([]*cuda.Lease, cfg.Streams), make([]uint8, cfg.Streams)
	for i := range r.leases {
		if err := r.lease(i); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// adopt puts streams of the runner's own in place of the pool's.
func (r *Runner) adopt() error {
	r.adopting = true
	for i, l := range r.leases {
		if err := errors.Join(l.Release(), r.lease(i)); err != nil {
			return err
		}
	}
	return nil
}

// lease leases a stream.
func (r *Runner) lease(i int) (err error) {
	if r.adopting {
		var made driver.Stream
		if made, err = r.device.StreamCreate(); err == nil {
			r.leases[i], err = r.Streams.Adopt(made, "check")
		}
	} else {
		r.leases[i], err = r.Streams.Acquire(ctx, "check")
	}
	if err == nil {
		r.handles[i] = uint8(r.leases[i].Handle())
	}
	return err
}

// giveUp gives a stream up and adopts another.
func (r *Runner) giveUp(stream uint8) error {
	r.device.Put(oracle.Node{Kind: oracle.Last, Stream: r.handles[stream], Op: r.device.Op})
	if err := r.leases[stream].Release(); err != nil {
		return err
	}
	if r.pool != nil {
		r.pool.ended[r.handles[stream]] = true
	}
	return r.lease(int(stream))
}

// Released looks whether the device has executed a block's free, as a
// [core.Listener] of the backend.
func (r *Runner) Released(b core.Block) {
	for i := range r.blocks {
		if r.pool != nil && r.blocks[i].ID.Generation == b.ID.Generation {
			r.pool.told = append(r.pool.told, uint8(i)) // its free may be of this step
			return
		}
		if r.blocks[i].ID.Generation == b.ID.Generation && !r.device.Freed(uint8(i)) && r.early == nil {
			r.early = fmt.Errorf("%w: block %d", ErrEarly, i)
		}
	}
}

// Close ends the runner, and looks whether every event came back.
func (r *Runner) Close() error {
	r.device.Reset() // streams are closed at the same time, and must find nothing to note
	r.device.Finish()
	for _, l := range r.leases {
		if err := l.Release(); err != nil {
			return err
		}
	}
	if err := errors.Join(r.Backend.Close(ctx), r.Streams.Close(ctx)); err != nil {
		return err
	}
	if n := r.device.Events(); n != 0 {
		return fmt.Errorf("%w: %d", ErrEvents, n)
	}
	return nil
}

// Run takes the steps of a program, frees what it left, and judges what
// arrived at the device. An error says that the production code failed
// where it must not, or did not refuse what it must.
func (r *Runner) Run(p program.Program, steps Schedule) (oracle.Verdict, error) {
	if p.GivesUp() && !r.adopting {
		if err := r.adopt(); err != nil {
			return oracle.Verdict{}, err
		}
	}
	r.begin(p)
	for _, step := range steps {
		if r.pool.leavesOut(step) {
			continue
		}
		if err := r.take(p, step); err != nil {
			return oracle.Verdict{}, fmt.Errorf("step %v: %w", Schedule{step}, err)
		}
	}
	for b := range r.blocks {
		if r.live[b] {
			if err := r.free(uint8(b), len(p)+b); err != nil {
				return oracle.Verdict{}, fmt.Errorf("the last free of block %d: %w", b, err)
			}
		}
	}
	if r.config.Over == Isolated {
		return oracle.Verdict{}, r.settle()
	}
	v := r.device.History.Judge()
	return v, r.settle()
}

// Drop makes the device forget the k-th wait of every run, from 1; 0 ends that.
func (r *Runner) Drop(k int) { r.device.Drop = k }

// History is what arrived at the device in the last run. It is empty after
// one that went well.
func (r *Runner) History() *oracle.History { return r.device.History }

func (r *Runner) begin(p program.Program) {
	r.device.Reset()
	r.blocks, r.live, r.early = r.blocks[:0], r.live[:0], nil
	r.refused = 0
	if r.pool != nil {
		r.pool.begin()
	}
	for len(r.tickets) < len(p) {
		r.tickets = append(r.tickets, core.Ticket{})
	}
}

// CheckBooks demands that the books of a resource say that all is freed and done, with so many
// failures.
func CheckBooks(s *core.Stats, failures uint64) error {
	if s.Outstanding().Blocks != 0 || s.OpenIntents != 0 || s.Poisoned != 0 || s.Failures != failures || s.Underflows != 0 {
		return fmt.Errorf("%w: %d failures expected: %+v", ErrBooks, failures, *s)
	}
	return nil
}

// settle lets the device execute all and looks whether everything came back.
func (r *Runner) settle() error {
	r.device.Finish()
	if err := r.resource.ReapPending(ctx); err != nil {
		return err
	}
	s := r.resource.Stats()
	failures := s.Failures - r.failures
	r.failures = s.Failures
	if err := CheckBooks(&s, s.Failures-failures+r.refused); err != nil {
		return err
	}
	for b := range r.blocks {
		if r.device.Torn(uint8(b)) {
			return fmt.Errorf("%w: block %d", ErrTorn, b)
		}
	}
	if r.pool != nil {
		return r.pool.settle()
	}
	return r.early
}
