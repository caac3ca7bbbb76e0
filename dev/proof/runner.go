package proof

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	ErrEarly = errors.New("a block is called reusable before the device has executed its free, or, where blocks are released in order, before that is queued or a use elsewhere is done")
	// ErrTorn: a block was unmapped under the device's hands.
	ErrTorn = errors.New("a block is unmapped before the device has done what uses it")
	// ErrLeft means that the pool has unused pages that it does not give back.
	ErrLeft = errors.New("pages are left when all is freed and trimmed")
)

// Config says over what programs are run.
type Config struct {
	Streams int
	Over    Memory
	// Adopted is the set of the streams that are adopted ones.
	Adopted uint64
	// DeviceOrder is that of [cuda.StreamPoolConfig]: to the oracle, too, what the host has seen done
	// orders nothing.
	DeviceOrder bool
	// Layers are around the backend.
	Layers []core.Layer
	// Names are what launches are called, by operation; nil for nothing.
	Names []string
	// Device is what the programs are run on, a new one if it is nil.
	Device *device.Device
	// Gate is in front of the device where several goroutines call it at the same time. It puts
	// allocations and frees of the runtime's own pool into the history, which otherwise the runner does.
	Gate Gate
}

// Gate is a device that is told of what it is called for.
type Gate interface {
	driver.Driver
	// Begin begins a call of the runtime's, End ends it.
	Begin(device.Call)
	End()
	// Put puts a node of the program's own on a stream.
	Put(oracle.Node)
	// Execute lets the device do what is on a stream.
	Execute(stream uint8)
}

// Runner runs programs on the production code, over a device that writes down
// what arrives there. It is not safe for concurrent use; goroutines of which one runs at a time, as
// package interleave has them, may be inside [Runner.Take] together.
type Runner struct {
	Streams *cuda.StreamPool
	Backend Backend

	config Config
	device *device.Device
	gate   Gate
	// resource is the outermost layer, entry the one that counts over the own pool, else nil.
	resource core.Resource
	entry    *entry
	leases   []*cuda.Lease
	handles  []uint8
	// adopted and released are sets of streams: those that were adopted, and whose lease was given back
	// without another in its place.
	adopted, released uint64
	// pool is what else there is of a runtime with a pool of its own, unless the gate sees to it.
	pool *hosted

	// early is the first block that was said to be reusable before the
	// device had executed its free.
	early error
	// refused is how many calls were refused in this run for a reason, of which outOfMemory for want of
	// that; failures is what the books had of failures before it, pooled what the pool had done.
	refused, outOfMemory, failures uint64
	pooled                         core.OwnPoolStats
	moves                          Moves

	// blocks are those that were made in this run, of which some live.
	blocks  [program.MaxBlocks]core.Block
	made    uint8
	live    program.Set
	tickets []core.Ticket
}

// NewRunner returns a runner. It must be closed.
func NewRunner(cfg Config) (*Runner, error) {
	r := &Runner{config: cfg, device: cfg.Device, gate: cfg.Gate, adopted: cfg.Adopted}
	if r.device == nil {
		r.device = device.New()
	}
	if r.gate == nil {
		r.gate = r.device
	}
	r.device.Forgetful, r.device.Hosted = cfg.DeviceOrder, cfg.Over.IsOwnPool()
	if cfg.DeviceOrder {
		r.device.History.FreesWait = true
	}
	var err error
	if r.Streams, err = cuda.NewStreamPool(r.gate, cuda.StreamPoolConfig{Max: max(cfg.Streams, cuda.DefaultMaxStreams), DeviceOrder: cfg.DeviceOrder}); err != nil {
		return nil, err
	}
	if cfg.Over.IsOwnPool() {
		r.Backend, err = cuda.NewPoolResource(r.gate, r.Streams, cuda.PoolConfig{Limit: PoolPages * device.PageBytes, ReapInterval: -1})
	} else {
		r.Backend, err = cuda.NewAsyncResource(r.gate, r.Streams, cuda.AsyncConfig{ReapInterval: -1})
	}
	if err != nil {
		return nil, err
	}
	if cfg.Gate == nil {
		r.Backend.Subscribe(r)
		if cfg.Over.IsOwnPool() {
			r.pool = newHosted(r.device)
		}
	}
	front := core.Resource(r.Backend)
	if cfg.Over.IsOwnPool() {
		r.entry = enter(r.Backend, cfg.Over == OwnPool)
		front = r.entry
	}
	if r.resource, err = core.Chain(front, cfg.Layers...); err != nil {
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

// Adopt puts streams of the runner's own in place of the pool's.
func (r *Runner) Adopt() error {
	r.adopted = ^uint64(0)
	for i, l := range r.leases {
		if err := errors.Join(l.Release(), r.lease(i)); err != nil {
			return err
		}
	}
	return nil
}

// lease leases a stream.
func (r *Runner) lease(i int) (err error) {
	if r.adopted>>i&1 != 0 {
		var made driver.Stream
		if made, err = r.gate.StreamCreate(); err == nil {
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

// Handle is a stream's number on the device.
func (r *Runner) Handle(stream uint8) uint8 { return r.handles[stream] }

// Lease is that of a stream.
func (r *Runner) Lease(stream uint8) *cuda.Lease { return r.leases[stream] }

// Block is one that was allocated.
func (r *Runner) Block(block uint8) core.Block { return r.blocks[block] }

// Live are the blocks that were allocated and not freed.
func (r *Runner) Live() program.Set { return r.live }

// Device is what the programs are run on.
func (r *Runner) Device() *device.Device { return r.device }

// Released looks whether the device has executed a block's free, as a
// [core.Listener] of the backend.
func (r *Runner) Released(b core.Block) {
	for i := range r.blocks[:r.made] {
		if r.blocks[i].ID.Generation != b.ID.Generation {
			continue
		}
		if r.pool != nil {
			r.pool.told = append(r.pool.told, uint8(i)) // its free may be of this step
		} else if !r.device.Freed(uint8(i)) && r.early == nil {
			r.early = fmt.Errorf("%w: block %d", ErrEarly, i)
		}
	}
}

// closing is how long the runtime may take to close. It has nothing to wait for.
const closing = 10 * time.Second

// Close ends the runner, and looks whether every event came back.
func (r *Runner) Close() error {
	ctx, cancel := context.WithTimeout(ctx, closing)
	defer cancel()
	r.device.Reset() // streams are closed at the same time, and must find nothing to note
	r.device.Finish()
	for i, l := range r.leases {
		if r.released>>i&1 == 0 {
			if err := l.Release(); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(r.Backend.Close(ctx), r.Streams.Close(ctx)); err != nil {
		return err
	}
	if n, on := r.device.Events(), r.Streams.Stats().Events; n != 0 || on != 0 {
		return fmt.Errorf("%w: %d on the device, %d on streams", ErrEvents, n, on)
	}
	return nil
}

// Run takes the steps of a program, frees what it left, and judges what
// arrived at the device. An error says that the production code failed
// where it must not, or did not refuse what it must.
func (r *Runner) Run(p program.Program, steps Schedule) (oracle.Verdict, error) {
	if p.GivesUp() && r.adopted == 0 {
		if err := r.Adopt(); err != nil {
			return oracle.Verdict{}, err
		}
	}
	r.begin()
	for _, step := range steps {
		if r.pool.leavesOut(step) {
			continue
		}
		if err := r.Take(p[step.Op], step); err != nil {
			return oracle.Verdict{}, fmt.Errorf("step %v: %w", Schedule{step}, err)
		}
	}
	if err := r.FreeAll(len(p)); err != nil {
		return oracle.Verdict{}, err
	}
	if r.config.Over == Isolated {
		return oracle.Verdict{}, r.Settle()
	}
	v := r.device.History.Judge()
	return v, r.Settle()
}

// FreeAll frees what lives, as operations from op on.
func (r *Runner) FreeAll(op int) error {
	for b := range r.live.All() {
		if err := r.Take(program.Op{Kind: program.Free, Block: b}, Step{Op: uint8(op)}); err != nil {
			return fmt.Errorf("the last free of block %d: %w", b, err)
		}
		op++
	}
	return nil
}

// History is what arrived at the device in the last run. It is empty after
// one that went well.
func (r *Runner) History() *oracle.History { return r.device.History }

func (r *Runner) begin() {
	r.device.Reset()
	r.made, r.live, r.early, r.refused = 0, 0, nil, 0
	if r.pool != nil {
		r.pool.begin()
	}
	r.BeginMoves()
}

// BeginMoves begins to count what the pool does, and what is refused for want of memory.
func (r *Runner) BeginMoves() {
	r.outOfMemory, r.device.Reuse = 0, device.Reuse{}
	if r.config.Over.IsOwnPool() || r.config.Gate != nil { // the scheduler knows then what it meets here
		r.pooled = r.Backend.Stats().OwnPool
	}
	if r.entry != nil {
		r.entry.moves = Moves{}
	}
}

// Settle lets the device execute all and looks whether everything came back.
func (r *Runner) Settle() error {
	r.device.Finish()
	if err := r.resource.ReapPending(ctx); err != nil {
		return err
	}
	s := r.resource.Stats()
	failures := r.failures + r.refused
	if r.config.Gate != nil { // a refusal because of another call need not count as a failure
		failures = min(failures, s.Failures)
	}
	r.failures = s.Failures
	if s.Outstanding().Blocks != 0 || s.OpenIntents != 0 || s.Poisoned != 0 || s.Failures != failures || s.Underflows != 0 {
		return fmt.Errorf("%w: %d failures expected: %+v", ErrBooks, failures, s)
	}
	for b := range r.blocks {
		if r.device.Torn(uint8(b)) {
			return fmt.Errorf("%w: block %d", ErrTorn, b)
		}
	}
	if r.config.Over.IsOwnPool() {
		return r.settlePool()
	}
	return r.early
}
