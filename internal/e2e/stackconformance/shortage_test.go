package stackconformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// shortageStack is one stack of the table.
type shortageStack struct {
	// backend is pool, async or direct.
	backend string
	// limit says what bounds memory to [shortageBytes], and whether there is a budget:
	//
	//	budget         a budget, and much memory
	//	device         a small device
	//	device+budget  a small device, and a budget that is larger
	//	share          a share of much memory
	//	share+budget   a share of a large device, and a budget that is larger
	limit string
	// guard is the mode of the guard. A stack with "none" has no guard, and one that is "impatient" is in mode off
	// and has no patience.
	guard string
}

func (s shortageStack) hasBudget() bool { return strings.Contains(s.limit, "budget") }

// The sizes of the table. The held block and the freed one fill the memory: with their red zones each takes two
// pages. The request needs most of the freed one.
const (
	shortageBytes   = 8 << 20
	shortageBlock   = 3<<20 + 512<<10
	shortageRequest = 3 << 20
	// shortagePatience is the guard's; the context of a request that ends first ends at shortageEnd, and the
	// device's work at shortageWork. Time stands still while anything runs.
	shortagePatience = time.Second
	shortageEnd      = 300*time.Millisecond + 300*time.Microsecond
	shortageWork     = 100*time.Millisecond + 300*time.Microsecond
)

// shortage is a stack in a situation, and what was noted of the request.
type shortage struct {
	*testing.T
	how    shortageStack
	stack  *teststack.Stack
	guard  *debugguard.Resource
	faults *drivertest.Faults

	mine, other *cuda.Lease
	claim       core.Claim // that the request is drawn from

	mu     sync.Mutex
	noting bool
	asked  []string
	events []oplog.Event
}

// Emit takes the refusals.
func (s *shortage) Emit(_ context.Context, e oplog.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noting && e.Op == oplog.OpRefusal {
		s.events = append(s.events, e)
	}
}

// note notes a call. The function that it returns takes how the call ended.
func (s *shortage) note(what string) (end func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.noting {
		return func(error) {}
	}
	i := len(s.asked)
	s.asked = append(s.asked, what)
	return func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			s.asked[i] += "!"
		}
	}
}

// recorder notes the calls that pass it. It is a layer that takes no part in the path.
type recorder struct {
	core.Resource
	s *shortage
	// The names of the calls here. A call without one is not noted.
	allocates, reserves, frees, reaps string
}

func (r *recorder) String() string        { return "recorder(" + r.Resource.String() + ")" }
func (r *recorder) Unwrap() core.Resource { return r.Resource }

func (r *recorder) note(what string) (end func(error)) {
	if what == "" {
		return func(error) {}
	}
	return r.s.note(what)
}

func (r *recorder) Allocate(ctx context.Context, req core.Request) (core.Block, error) {
	end := r.note(r.allocates)
	b, err := r.Resource.Allocate(ctx, req)
	end(err)
	return b, err
}

func (r *recorder) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	end := r.note(r.reserves)
	c, err := r.Resource.Reserve(ctx, bytes, tag)
	end(err)
	return c, err
}

func (r *recorder) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	end := r.note(r.frees)
	b, err := r.Resource.Deallocate(ctx, id)
	end(err)
	return b, err
}

func (r *recorder) ReapPending(ctx context.Context) error {
	end := r.note(r.reaps)
	err := r.Resource.ReapPending(ctx)
	end(err)
	return err
}

// newShortage builds a stack. recorded puts a recorder above the backend, and one above the budget.
func newShortage(t *testing.T, how shortageStack, recorded bool) *shortage {
	t.Helper()
	s := &shortage{T: t, how: how}
	cfg := teststack.Config{Sim: sim.Config{Bytes: 256 << 20}, Streams: 16, Async: cuda.AsyncConfig{ReapInterval: -1},
		Wrap: func(d driver.Driver) driver.Driver { s.faults = drivertest.NewFaults(d); return s.faults }}
	if strings.HasPrefix(how.limit, "device") {
		cfg.Sim.Bytes = shortageBytes
	}
	if how.backend == "pool" {
		cfg.Pool = &cuda.PoolConfig{}
	}
	s.stack = teststack.Open(t, cfg)
	var base core.Resource = s.stack.Backend
	if how.backend == "direct" {
		base = cuda.NewDirectResource(s.stack.Driver)
	}
	if strings.HasPrefix(how.limit, "share") {
		base.(interface{ SetShare(uint64) }).SetShare(shortageBytes)
	}
	top, err := core.Chain(base, s.layers(recorded)...)
	must.Do(t, err)
	s.stack.Runtime, err = core.NewRuntime(top, nil)
	must.Do(t, err)
	s.mine, s.other = s.stack.Lease(t, "mine"), s.stack.Lease(t, "other")
	return s
}

func (s *shortage) layers(recorded bool) (layers []core.Layer) {
	record := func(r recorder) {
		if recorded {
			layers = append(layers, func(up core.Resource) (core.Resource, error) {
				r.Resource, r.s = up, s
				return &r, nil
			})
		}
	}
	record(recorder{allocates: "try", reserves: "try claim", frees: "free", reaps: "reap"})
	if s.how.hasBudget() {
		cfg := budget.Config{Limit: shortageBytes}
		if s.how.limit != "budget" {
			cfg.Limit = 4 * shortageBytes
		}
		if s.how.guard == "none" {
			cfg.Events = s
		}
		layers = append(layers, func(up core.Resource) (core.Resource, error) { return budget.New(up, cfg) })
		record(recorder{allocates: "ask", reserves: "ask claim"})
	}
	if s.how.guard != "none" {
		layers = append(layers, s.newGuard)
	}
	return layers
}

func (s *shortage) newGuard(up core.Resource) (_ core.Resource, err error) {
	ops, err := cuda.NewDeviceOps(s.stack.Driver, s.stack.Streams, guardkernels.Image())
	if err != nil {
		return nil, err
	}
	s.Cleanup(func() {
		must.Do(s, s.stack.Runtime.Drain(context.Background())) // what was freed last is compared before
		expect.Success(s, ops.Close(context.Background()))
	})
	mode := map[string]debugguard.Mode{"ledger": debugguard.Ledger, "sample": debugguard.Sample,
		"hunt": debugguard.Hunt}
	patience := shortagePatience
	if s.how.guard == "impatient" {
		patience = -1
	}
	s.guard, err = debugguard.New(up, debugguard.Config{Mode: mode[s.how.guard], Device: ops,
		QuarantineBytes: 4 * shortageBytes, QuarantineAge: -1, SampleBytes: 1,
		Advanced: debugguard.Advanced{Events: s, SampleRate: -1, UpkeepInterval: -1, Patience: patience,
			Hunt: debugguard.HuntConfig{Canaries: -1}}})
	return s.guard, err
}

// allocate makes a block before the situation.
func (s *shortage) allocate(on *cuda.Lease, bytes uint64) core.Block {
	s.Helper()
	synctest.Wait() // the device does not run beside it
	req := core.Request{Bytes: bytes, Stream: on.ID(), Tag: "before"}
	return must.Get(s.stack.Runtime.Allocate(s.Context(), req))(s)
}

func (s *shortage) free(b core.Block) {
	s.Helper()
	synctest.Wait()
	must.Get(s.stack.Runtime.Deallocate(s.Context(), b.ID))(s)
}

// held is a block that lives until the end.
func (s *shortage) held(on *cuda.Lease, bytes uint64) {
	b := s.allocate(on, bytes)
	s.Cleanup(func() { s.free(b) })
}

// busy gives a stream work that ends with a call of end.
func (s *shortage) busy(on *cuda.Lease) (end func()) {
	s.Helper()
	end = must.Get(s.stack.Sim.Hold(on.Handle()))(s)
	s.Cleanup(end)
	return end
}

// endsLater has the device end the work once the request waits, or was answered.
func (s *shortage) endsLater(end func()) {
	later := time.AfterFunc(shortageWork, end)
	s.Cleanup(func() { later.Stop() })
}

// settle has the device and the stack come to the end of what they can do, and quarantine given up.
func (s *shortage) settle() {
	s.Helper()
	synctest.Wait()
	must.Do(s, s.stack.Runtime.Drain(s.Context()))
	synctest.Wait()
}

// answer is the request in a situation.
type answer struct {
	block core.Block
	claim core.Claim
	err   error
}

// request asks for memory on the stream mine.
func (s *shortage) request(ctx context.Context, req core.Request) (a answer) {
	req.Stream, req.Tag = s.mine.ID(), "request"
	a.block, a.err = s.stack.Runtime.Allocate(ctx, req)
	return a
}

func (s *shortage) reserve(ctx context.Context, bytes uint64) (a answer) {
	a.claim, a.err = s.stack.Runtime.Reserve(ctx, bytes, "request")
	return a
}

// counts are what the stack counts of refusals and cures, as callers see it.
type counts struct {
	name string
	n    uint64
}

func (s *shortage) counts() []counts {
	st := s.stack.Runtime.Resource().Stats()
	all := []counts{{"refusals", st.Refusals}, {"failures", st.Failures},
		{"waits", st.MemoryWaits}, {"served", st.MemoryWaitsServed}}
	if s.guard != nil {
		g := s.guard.GuardStats()
		all = append(all, counts{"relieved", g.Relieved}, counts{"evicted", g.Evicted}, counts{"bare", g.Unguarded})
	}
	return all
}

// outcome is a row's right side.
type outcome struct{ asked, device, heard, counted string }

// ask makes the request, and notes what comes of it.
func (s *shortage) ask(request func(*shortage) answer) (o outcome) {
	s.Helper()
	synctest.Wait()
	before, logged := s.counts(), len(s.faults.Log())
	s.faults.SetLog(true)
	s.noting = true
	a := request(s)
	s.mu.Lock()
	s.noting = false
	s.mu.Unlock()
	s.faults.SetLog(false)
	var counted []string
	for i, c := range s.counts() {
		if n := c.n - before[i].n; n != 0 {
			counted = append(counted, fmt.Sprint(c.name, ":", int64(n)))
		}
	}
	o = outcome{e2e.Repeats(s.asked), deviceCalls(s.faults.Log()[logged:]), s.heard(a), strings.Join(counted, " ")}
	if a.block.ID.Generation != 0 {
		s.free(a.block)
	}
	if a.claim.ID != 0 {
		must.Do(s, s.stack.Runtime.ReleaseClaim(s.Context(), a.claim.ID))
	}
	return o
}

// deviceNames are the driver's calls that have to do with memory, or ask how far the device is. EventSynchronize is not
// among them: it follows a query that has found the event done, and does not wait.
var deviceNames = map[drivertest.Method]string{
	drivertest.MemAlloc: "alloc", drivertest.MemAllocAsync: "alloc",
	drivertest.MemFree: "free", drivertest.MemFreeAsync: "free",
	drivertest.PoolTrim: "trim", drivertest.MemCreate: "create", drivertest.MemRelease: "release",
	drivertest.MemMap: "map", drivertest.MemUnmap: "unmap", drivertest.StreamWait: "wait",
	drivertest.EventQuery: "query", drivertest.StreamQuery: "query",
}

// deviceCalls are the kinds of calls in the order in which each came first.
func deviceCalls(log []drivertest.Call) string {
	var calls []string
	for _, c := range log {
		name, ok := deviceNames[c.Method]
		if c.Failed {
			name += "!"
		}
		if ok && !slices.Contains(calls, name) {
			calls = append(calls, name)
		}
	}
	return strings.Join(calls, ", ")
}

// heard is what the caller was told, and the refusals' sink.
func (s *shortage) heard(a answer) string {
	var words []string
	add := func(is bool, word string) {
		if is {
			words = append(words, word)
		}
	}
	if a.err == nil {
		add(true, "ok")
	}
	short, _ := errors.AsType[*core.OutOfBudgetError](a.err)
	full, _ := errors.AsType[*core.OutOfMemoryError](a.err)
	waited, _ := errors.AsType[*core.WaitError](a.err)
	add(errors.Is(a.err, core.ErrOutOfBudget), "OutOfBudget")
	add(errors.Is(a.err, core.ErrClaimExceeded), "ClaimExceeded")
	add(errors.Is(a.err, core.ErrOutOfMemory), "OutOfMemory")
	add(errors.Is(a.err, errors.ErrUnsupported), "Unsupported")
	add(errors.Is(a.err, context.DeadlineExceeded), "DeadlineExceeded")
	add(a.err != nil && len(words) == 0, "other: "+fmt.Sprint(a.err))
	if full != nil {
		add(full.Bound != "", "by "+full.Bound)
		add(len(full.Holders) > 0, "holders")
	}
	if short != nil {
		add(len(short.Holders) > 0, "holders")
	}
	var wait core.Wait
	switch {
	case short != nil:
		wait = short.Wait
	case waited != nil:
		wait = waited.Wait
	}
	add(wait.For > 0, "waited")
	add(wait.Pending > 0, "for pending")
	add(wait.Ahead > 0, "ahead")
	for _, e := range s.events {
		add(e.Relieved, "[cured]")
		add(!e.Relieved, "[told]")
	}
	return strings.Join(words, " ")
}

// situation is a state of a stack, and a request.
type situation struct {
	name     string
	backends string
	limits   string
	// set makes the state.
	set func(*shortage)
	ask func(*shortage) answer
}

const (
	ordered      = "pool async"
	everyBackend = "pool async direct"
	notBudget    = "device device+budget share share+budget"
	allLimits    = "budget device device+budget share share+budget"
)

var shortageGuards = []string{"none", "impatient", "off", "ledger", "sample", "hunt"}

// pending has a block freed on a stream that is busy, beside one that is held on the same.
func pending(s *shortage, on *cuda.Lease) (end func()) {
	s.held(on, shortageBlock)
	b := s.allocate(on, shortageBlock)
	end = s.busy(on)
	s.forwarded(b)
	return end
}

// forwarded frees a block so that it is not in quarantine.
func (s *shortage) forwarded(b core.Block) {
	s.Helper()
	if !s.quarantines() {
		s.free(b)
		return
	}
	mode := s.guard.Mode()
	must.Do(s, s.guard.SetMode(s.Context(), debugguard.Ledger))
	s.free(b)
	must.Do(s, s.guard.SetMode(s.Context(), mode))
}

func ask(bytes uint64) func(*shortage) answer {
	return func(s *shortage) answer { return s.request(s.Context(), core.Request{Bytes: bytes}) }
}

func isolated(bytes uint64) func(*shortage) answer {
	return func(s *shortage) answer { return s.request(s.Context(), core.Request{Bytes: bytes, Isolated: true}) }
}

func claim(bytes uint64) func(*shortage) answer {
	return func(s *shortage) answer { return s.reserve(s.Context(), bytes) }
}

// inTime is a request whose context ends first.
func inTime(request func(context.Context, *shortage) answer) func(*shortage) answer {
	return func(s *shortage) answer {
		ctx, cancel := context.WithTimeout(s.Context(), shortageEnd)
		defer cancel()
		return request(ctx, s)
	}
}

// quarantines reports whether the guard puts blocks in quarantine.
func (s *shortage) quarantines() bool { return s.how.guard == "sample" || s.how.guard == "hunt" }

// lag holds a stream's later work until the request waits, or was answered. So the device does not run beside the
// request.
func (s *shortage) lag(on *cuda.Lease) {
	if s.quarantines() {
		s.endsLater(s.busy(on))
	}
}

// quarantined frees a block when the device is idle. A guard that samples or hunts keeps it in quarantine. With any
// other the device has passed the free, and no reap has seen it.
func quarantined(s *shortage) {
	s.held(s.other, shortageBlock)
	b := s.allocate(s.other, shortageBlock)
	s.settle()
	s.free(b)
	synctest.Wait()
	s.lag(s.other)
}

// mixed has half of what the request needs in quarantine, and half pending elsewhere.
func mixed(s *shortage) (end func()) {
	s.held(s.other, shortageBlock)
	freed, quarantined := s.allocate(s.other, shortageBlock/2), s.allocate(s.mine, shortageBlock/2)
	end = s.busy(s.other)
	s.forwarded(freed)
	s.free(quarantined)
	synctest.Wait()
	s.lag(s.mine)
	return end
}

// credit has a stream keep what it freed for itself.
func credit(s *shortage) {
	for range 8 {
		s.free(s.allocate(s.other, 900<<10))
		s.settle()
	}
}

// cached has memory that is free in the pool, of another stream.
func cached(s *shortage, bytes uint64) {
	s.held(s.other, shortageBlock)
	var blocks []core.Block
	for n := uint64(0); n < shortageBlock; n += bytes {
		blocks = append(blocks, s.allocate(s.other, min(bytes, shortageBlock-n)))
	}
	for _, b := range blocks {
		s.forwarded(b)
	}
	s.settle()
}

func full(s *shortage) {
	s.held(s.other, shortageBlock)
	s.held(s.other, shortageBlock)
	s.settle()
}

// used has a freed block that an open launch uses. The launch ends with a call of end.
func used(s *shortage) (end func()) {
	s.held(s.other, shortageBlock)
	b := s.allocate(s.other, shortageBlock)
	s.settle()
	ticket := must.Get(s.stack.Runtime.PrepareUse(s.Context(), core.UseRequest{Stream: s.other.ID(), Launch: "open",
		Uses: []core.Use{{Block: b.ID, Access: core.Write}}}))(s)
	end = sync.OnceFunc(func() { expect.Success(s, s.stack.Runtime.FinishUse(context.Background(), ticket)) })
	s.Cleanup(end)
	s.forwarded(b)
	return end
}

// claimed has a claim of the request's size, of which a block is freed and pending elsewhere.
func claimed(s *shortage, bytes uint64, pending bool) (end func()) {
	s.claim = must.Get(s.stack.Runtime.Reserve(s.Context(), bytes, "claim"))(s)
	s.Cleanup(func() { must.Do(s, s.stack.Runtime.ReleaseClaim(s.Context(), s.claim.ID)) })
	if !pending {
		return func() {}
	}
	b := must.Get(s.stack.Runtime.Allocate(s.Context(), core.Request{Bytes: bytes, Stream: s.other.ID(), Tag: "before",
		Claim: s.claim.ID}))(s)
	end = s.busy(s.other)
	s.forwarded(b)
	return end
}

func fromClaim(s *shortage) answer {
	return s.request(s.Context(), core.Request{Bytes: shortageRequest, Claim: s.claim.ID})
}

// later has the device end the work of a situation once the request waits, or was answered; stays never.
func later(set func(*shortage) (end func())) func(*shortage) {
	return func(s *shortage) { s.endsLater(set(s)) }
}

func stays(set func(*shortage) (end func())) func(*shortage) {
	return func(s *shortage) { set(s) }
}

func pendingMine(s *shortage) (end func())  { return pending(s, s.mine) }
func pendingOther(s *shortage) (end func()) { return pending(s, s.other) }

// pendingAlone has a block pending elsewhere, and nothing held.
func pendingAlone(s *shortage) (end func()) {
	b := s.allocate(s.other, shortageRequest)
	end = s.busy(s.other)
	s.forwarded(b)
	return end
}

func pendingOfClaim(s *shortage) (end func()) { return claimed(s, shortageRequest, true) }

func claimTooSmall(s *shortage) (end func()) { return claimed(s, shortageRequest/2, false) }

func pagesFree(s *shortage)  { cached(s, shortageBlock) }
func piecesFree(s *shortage) { cached(s, 700<<10) }
func nothing(*shortage)      {}

func askInTime(ctx context.Context, s *shortage) answer {
	return s.request(ctx, core.Request{Bytes: shortageRequest})
}

func claimInTime(ctx context.Context, s *shortage) answer { return s.reserve(ctx, shortageRequest) }

// The sizes of requests.
const (
	usual        = shortageRequest
	justFits     = shortageBytes           // without red zones
	nearlyWhole  = shortageBytes - 300<<10 // with them
	tooLarge     = shortageBytes + 1<<20
	wholeMapping = 2 << 20 // of an isolated block
)

var shortages = []situation{
	{"pending on its own stream", ordered, allLimits, later(pendingMine), ask(usual)},
	{"pending elsewhere, ends", ordered, allLimits, later(pendingOther), ask(usual)},
	{"pending elsewhere, stays", ordered, allLimits, stays(pendingOther), ask(usual)},
	{"pending elsewhere, context ends", ordered, allLimits, stays(pendingOther), inTime(askInTime)},
	{"quarantine, or not reaped", everyBackend, allLimits, quarantined, ask(usual)},
	{"quarantine and pending elsewhere", ordered, allLimits, later(mixed), ask(usual)},
	{"freed, a launch that stays open uses it", ordered, allLimits, stays(used), ask(usual)},
	{"freed, an open launch uses it, and ends", ordered, allLimits, later(used), ask(usual)},
	{"credit of another stream", ordered, "budget", credit, ask(nearlyWhole)},
	{"free pages of another stream", ordered, notBudget, pagesFree, ask(usual)},
	{"free pieces of another stream", ordered, notBudget, piecesFree, ask(usual)},
	{"isolated, free pages in the pool", ordered, allLimits, pagesFree, isolated(wholeMapping)},
	{"isolated, pending elsewhere", ordered, allLimits, later(pendingOther), isolated(wholeMapping)},
	{"full", everyBackend, allLimits, full, ask(usual)},
	{"larger than the limit", ordered, allLimits, later(mixed), ask(tooLarge)},
	{"red zones do not fit", everyBackend, "budget", nothing, ask(justFits)},
	{"red zones do not fit, isolated", ordered, "budget", nothing, isolated(justFits)},
	{"red zones do not fit, pending", ordered, "budget", later(pendingAlone), ask(justFits)},
	{"claim, pending elsewhere, ends", ordered, "budget", later(pendingOther), claim(usual)},
	{"claim, pending elsewhere, stays", ordered, "budget", stays(pendingOther), claim(usual)},
	{"claim, pending, context ends", ordered, "budget", stays(pendingOther), inTime(claimInTime)},
	{"claim, quarantine, or not reaped", everyBackend, "budget", quarantined, claim(usual)},
	{"claim, quarantine and pending", ordered, "budget", later(mixed), claim(usual)},
	{"claim, larger than the limit", ordered, "budget", later(mixed), claim(tooLarge)},
	{"claim without a budget", everyBackend, "device", full, claim(usual)},
	{"from a claim that is too small", everyBackend, "budget", later(claimTooSmall), fromClaim},
	{"from a claim, pending elsewhere", ordered, "budget", later(pendingOfClaim), fromClaim},
}

// playShortage makes a situation, and the request.
func playShortage(t *testing.T, of situation, how shortageStack, recorded bool) (o outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newShortage(t, how, recorded)
		of.set(s)
		o = s.ask(of.ask)
	})
	return o
}

func stacks(of situation) (all []shortageStack) {
	for _, backend := range strings.Fields(of.backends) {
		for _, limit := range strings.Fields(of.limits) {
			for _, guard := range shortageGuards {
				if backend != "direct" || !strings.HasPrefix(limit, "share") {
					all = append(all, shortageStack{backend, limit, guard})
				}
			}
		}
	}
	return all
}
