package device_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/device"
)

// TestMain clears the variables that would change what is built here, but for
// the one that says where the driver is.
func TestMain(m *testing.M) {
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "FENCEPOST_") && name != libcuda.PathVariable {
			_ = os.Unsetenv(name)
		}
	}
	goleak.VerifyTestMain(m)
}

// bench is an engine on a simulated device of the test's.
type bench struct {
	*device.Engine
	rt  *fencepost.Runtime
	sim *sim.Device
}

// open opens an engine. The end of the test demands that nothing is held, that
// nothing was found, and that the device's own books are empty.
func open(t *testing.T, cfg fencepost.Config, patience time.Duration) *bench {
	t.Helper()
	d, err := sim.Open(sim.Config{Bytes: 64 << 20})
	must(t, err)
	if cfg.Driver == nil {
		cfg.Driver = d
	}
	rt, err := fencepost.Open(t.Context(), cfg)
	must(t, err)
	engine, err := device.New(device.Config{Runtime: rt, TracerProvider: noop.NewTracerProvider(), Patience: patience})
	must(t, err)
	t.Cleanup(func() {
		ctx := context.Background()
		must(t, rt.Drain(ctx))
		if st := rt.Stats(); st.Outstanding() != (core.Amount{}) || st.Claims != 0 || st.Charged != 0 || st.OpenIntents != 0 {
			t.Errorf("held after the last job: %+v", st)
		}
		if left, err := rt.Close(ctx); err != nil || len(left.Leaks) > 0 || left.OpenIntents > 0 {
			t.Errorf("closing: %v, left over %+v", err, left)
		}
		if d.FindingCount() > 0 || rt.Findings().Counts()["leak"] > 0 || d.Books().LiveBlocks > 0 {
			t.Errorf("found: %v; books %+v", d.Findings(), d.Books())
		}
		must(t, d.Close())
	})
	return &bench{Engine: engine, rt: rt, sim: d}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lengths are those at which a warp, a tile, a slice is not full, or a slice
// is shorter than the others.
var lengths = []int{1, 2, 31, 33, 255, 257, 2048, 2049, 5000, 64*2048 + 7}

func TestKeysAreSortedAsTheCPUSortsThem(t *testing.T) {
	checkSorts(t, open(t, fencepost.Config{}, 0).Engine)
}

func checkSorts(t *testing.T, b *device.Engine) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range lengths {
		keys := randomKeys(rng, n)
		got, err := b.Sort(t.Context(), keys)
		if err != nil || !slices.Equal(got, slices.Sorted(slices.Values(keys))) {
			t.Errorf("%d keys: wrong, or %v", n, err)
		}
	}
}

// randomKeys are keys of which some are equal in their upper digits.
func randomKeys(rng *rand.Rand, n int) []uint32 {
	keys := make([]uint32, n)
	for i := range keys {
		if keys[i] = rng.Uint32(); i%3 == 0 {
			keys[i] >>= 20
		}
	}
	return keys
}

// newTables makes tables of which about half of the left rows have a partner.
func newTables(rng *rand.Rand, left, right int) (t device.Tables, want []uint32) {
	partners := map[uint32]uint32{}
	for len(partners) < right {
		partners[rng.Uint32()>>1] = rng.Uint32() >> 1
	}
	for k, v := range partners {
		t.RightKeys, t.RightValues = append(t.RightKeys, k), append(t.RightValues, v)
	}
	for range left {
		k := rng.Uint32()
		if right > 0 && rng.IntN(2) == 0 {
			k = t.RightKeys[rng.IntN(right)]
		}
		v, ok := partners[k]
		if !ok {
			v = device.NoPartner
		}
		t.Left, want = append(t.Left, k), append(want, v)
	}
	return t, want
}

func TestRowsAreJoinedAsTheCPUJoinsThem(t *testing.T) {
	checkJoins(t, open(t, fencepost.Config{}, 0).Engine)
}

func checkJoins(t *testing.T, b *device.Engine) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, left := range lengths {
		for _, right := range []int{0, 1, 300, 5000} {
			tables, want := newTables(rng, left, right)
			tables.Left[0], want[0] = device.NoPartner, device.NoPartner // the mark itself may be asked for
			got, err := b.Join(t.Context(), tables)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%d rows with %d: wrong, or %v", left, right, err)
			}
		}
	}
}

func TestEmptyColumnsNeedNoDevice(t *testing.T) {
	b := open(t, fencepost.Config{}, 0)
	ctx := t.Context()
	sorted, sortErr := b.Sort(ctx, nil)
	joined, err := b.Join(ctx, device.Tables{RightKeys: []uint32{1}, RightValues: []uint32{2}})
	if err := errors.Join(sortErr, err); err != nil || sorted == nil || joined == nil || len(sorted)+len(joined) > 0 {
		t.Errorf("%v %v: %v", sorted, joined, err)
	}
	if n := b.rt.Stats().Allocations; n != 0 {
		t.Errorf("%d allocations for nothing", n)
	}
}

// crowded are n right rows whose keys all begin at one place of the table: the
// kernel's hash is p^p>>15 of a product p, which is 0 in its lower bits where
// both halves are the same.
func crowded(n uint32) (t device.Tables) {
	const multiplier = uint32(0x9e3779b1)
	inverse := multiplier
	for range 5 { // Newton's method, modulo 2^32
		inverse *= 2 - multiplier*inverse
	}
	for x := range n {
		t.RightKeys, t.RightValues = append(t.RightKeys, (x<<15|x)*inverse), append(t.RightValues, x)
	}
	t.Left = []uint32{t.RightKeys[n-1]}
	return t
}

// What the kernel would get wrong in silence is refused: keys twice, and more
// keys of one place than it searches.
func TestRightRowsThatMakeNoTableAreRefused(t *testing.T) {
	checkRefusedTables(t, open(t, fencepost.Config{}, 0).Engine)
}

func checkRefusedTables(t *testing.T, b *device.Engine) {
	t.Helper()
	for name, c := range map[string]struct {
		tables device.Tables
		want   error
	}{
		"a key with two values": {device.Tables{Left: []uint32{1}, RightKeys: []uint32{5, 5}, RightValues: []uint32{1, 2}}, device.ErrUnjoinable},
		"a crowd":               {crowded(1200), device.ErrUnjoinable},
		"a value missing":       {device.Tables{Left: []uint32{1}, RightKeys: []uint32{5, 6}, RightValues: []uint32{1}}, core.ErrInvalidRequest},
		"the mark as a key":     {device.Tables{Left: []uint32{1}, RightKeys: []uint32{device.NoPartner}, RightValues: []uint32{1}}, core.ErrInvalidRequest},
		"the mark as a value":   {device.Tables{Left: []uint32{1}, RightKeys: []uint32{1}, RightValues: []uint32{device.NoPartner}}, core.ErrInvalidRequest},
	} {
		if got, err := b.Join(t.Context(), c.tables); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, err := b.Join(t.Context(), crowded(1000)); err != nil || got[0] != 999 {
		t.Errorf("a crowd that can be searched: %v, %v", got, err)
	}
}

func TestTheReservationIsWhatTheWholeJobNeeds(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	tables, _ := newTables(rng, 3000, 700)
	for name, c := range map[string]struct {
		bytes uint64
		run   func(*bench) error
	}{
		"sort": {device.SortBytes(3000), func(b *bench) error { _, err := b.Sort(t.Context(), make([]uint32, 3000)); return err }},
		"join": {device.JoinBytes(tables), func(b *bench) error { _, err := b.Join(t.Context(), tables); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, c.run(open(t, fencepost.Config{Budget: c.bytes, Guard: "off"}, 0)))
		})
		t.Run(name+" with a byte less", func(t *testing.T) {
			b := open(t, fencepost.Config{Budget: c.bytes - 1, Guard: "off"}, 0)
			short, ok := errors.AsType[*core.OutOfBudgetError](c.run(b))
			if !ok || short.Requested != c.bytes || short.Limit != c.bytes-1 {
				t.Errorf("%+v", short)
			}
			if n := b.rt.Stats().Allocations; n != 0 {
				t.Errorf("%d allocations before the refusal", n)
			}
		})
	}
}

// A job waits for memory as long as its patience lasts, is refused once, and
// goes on as soon as there is some.
func TestAJobWaitsForMemoryAsLongAsItsPatienceLasts(t *testing.T) {
	const n = 1000
	limit := device.SortBytes(n)
	b := open(t, fencepost.Config{Budget: limit, Guard: "off"}, 500*time.Millisecond)
	claim, err := b.rt.Reserve(t.Context(), limit, "other")
	must(t, err)
	begin := time.Now()
	if _, err := b.Sort(t.Context(), make([]uint32, n)); !errors.Is(err, core.ErrOutOfBudget) || time.Since(begin) < 500*time.Millisecond {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
	if n := b.rt.Stats().Refusals; n != 1 {
		t.Errorf("%d refusals were counted for one job", n)
	}
	patient, err := device.New(device.Config{Runtime: b.rt, TracerProvider: noop.NewTracerProvider(), Patience: time.Hour})
	must(t, err)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := patient.Sort(short, make([]uint32, n)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a shorter deadline: %v", err)
	}
	if _, err := b.Sort(t.Context(), make([]uint32, 10*n)); !errors.Is(err, core.ErrOutOfBudget) {
		t.Errorf("more than the limit: %v", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = b.rt.ReleaseClaim(context.Background(), claim.ID) })
	if _, err := patient.Sort(t.Context(), make([]uint32, n)); err != nil {
		t.Errorf("when the memory came back: %v", err)
	}
}

// A deadline that passes while the device is busy ends the job at once; what
// it held comes back when the device has passed it.
func TestADeadlineEndsAJobAndCostsNoMemory(t *testing.T) {
	b := open(t, fencepost.Config{Streams: 2, Resource: fencepost.Async}, 0)
	lease, err := b.rt.Streams().Acquire(t.Context(), "test")
	must(t, err)
	release, err := b.sim.Hold(lease.Handle())
	must(t, err)
	must(t, lease.Release()) // the next job gets the stream, last in first out
	ctx := overdueWhen(t, func() bool { return b.rt.Stats().Live.Blocks == 3 })
	_, err = b.Sort(ctx, make([]uint32, 5000))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the job on a stream that hangs: %v", err)
	}
	if st := b.rt.Stats(); st.Live.Bytes != 0 || st.Pending.Bytes == 0 || st.Claims != 0 {
		t.Errorf("behind it: %+v", st)
	}
	release()
}

// overdueWhen is a context whose deadline passes when something is so, and not by
// a clock, since a busy machine may be late for that.
func overdueWhen(t *testing.T, so func() bool) context.Context {
	t.Helper()
	ctx := overdue{t.Context(), make(chan struct{})}
	go func() {
		for !so() && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		close(ctx.passed)
	}()
	return ctx
}

// overdue is a context that overdueWhen ends.
type overdue struct {
	context.Context
	passed chan struct{}
}

func (o overdue) Done() <-chan struct{} { return o.passed }

func (o overdue) Err() error {
	select {
	case <-o.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestAJobThatGetsNoStreamHoldsNothing(t *testing.T) {
	b := open(t, fencepost.Config{Streams: 1}, 0)
	lease, err := b.rt.Streams().Acquire(t.Context(), "test")
	must(t, err)
	ctx := overdueWhen(t, func() bool { return b.rt.Streams().Stats().Waiting == 1 })
	tables, _ := newTables(rand.New(rand.NewPCG(1, 1)), 10, 10)
	if _, err := b.Join(ctx, tables); !errors.Is(err, cuda.ErrNoStream) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if st := b.rt.Stats(); st.Claims != 0 || b.rt.Streams().Stats().Leased != 1 {
		t.Errorf("%+v, %+v", st, b.rt.Streams().Stats())
	}
	must(t, lease.Release())
}

// failingJobs runs a sort and a join with the k-th driver call from then on
// failing, and reports whether there was one. What failed must work when it is
// asked again, and give everything back either way.
func failingJobs(t *testing.T, k uint64) bool {
	t.Helper()
	d, err := sim.Open(sim.Config{Bytes: 64 << 20, Schedule: sim.Seeded(1)}) // the same calls for every k
	must(t, err)
	faults := drivertest.NewFaults(d)
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Driver: faults, Guard: "off", Async: cuda.AsyncConfig{ReapInterval: -1}})
	must(t, err)
	engine, err := device.New(device.Config{Runtime: rt, TracerProvider: noop.NewTracerProvider()})
	must(t, err)
	tables, want := newTables(rand.New(rand.NewPCG(1, 1)), 300, 40)
	before, reached := faults.Total(), false
	faults.FailCall(k, driver.Unknown)
	for _, attempt := range []string{"failing", "again"} {
		_, sortErr := engine.Sort(t.Context(), make([]uint32, 300))
		got, joinErr := engine.Join(t.Context(), tables)
		if err := errors.Join(sortErr, joinErr); err != nil && (attempt == "again" || !errors.Is(err, core.ErrDriver)) {
			t.Errorf("call %d, %s: %v", k, attempt, err)
		}
		if joinErr == nil && !slices.Equal(got, want) {
			t.Errorf("call %d, %s: a wrong result and no error", k, attempt)
		}
		if attempt == "failing" {
			reached = faults.Total()-before >= k
			faults.Clear()
		}
	}
	must(t, rt.Drain(t.Context()))
	if st := rt.Stats(); st.Outstanding() != (core.Amount{}) || st.Claims != 0 || st.OpenIntents != 0 {
		t.Errorf("call %d: held after the jobs: %+v", k, st)
	}
	left, err := rt.Close(t.Context())
	must(t, err)
	if len(left.Leaks) > 0 || d.FindingCount() > 0 || d.Books().LiveBlocks > 0 {
		t.Errorf("call %d: left over %+v, found %v", k, left, d.Findings())
	}
	must(t, d.Close())
	return reached
}

func TestEveryDriverCallOfAJobMayFail(t *testing.T) {
	k, step := uint64(1), uint64(1)
	if testing.Short() {
		step = 5
	}
	for ; failingJobs(t, k) && !t.Failed(); k += step {
	}
	t.Logf("of %d calls each in %d was made to fail in turn", k-1, step)
	if !t.Failed() && k < 120 {
		t.Errorf("only %d calls were made: the jobs have lost their work", k-1)
	}
}

func TestManyJobsAtATimeAreAllRight(t *testing.T) {
	checkManyJobs(t, open(t, fencepost.Config{Guard: "hunt"}, time.Minute).Engine)
}

func checkManyJobs(t *testing.T, b *device.Engine) {
	t.Helper()
	var group sync.WaitGroup
	for g := range uint64(8) {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(7, g))
			for range 8 {
				keys := randomKeys(rng, 1+rng.IntN(4000))
				if got, err := b.Sort(t.Context(), keys); err != nil || !slices.Equal(got, slices.Sorted(slices.Values(keys))) {
					t.Errorf("a sort: wrong, or %v", err)
				}
				tables, want := newTables(rng, 1+rng.IntN(4000), rng.IntN(1000))
				if got, err := b.Join(t.Context(), tables); err != nil || !slices.Equal(got, want) {
					t.Errorf("a join: wrong, or %v", err)
				}
			}
		})
	}
	group.Wait()
}

// The bug for practice is found, by its tag and its launch, and costs nobody a
// right result. Columns that fill their block to the last byte are spared, for
// what is behind them may be somebody's.
func TestAPlantedOverrunIsFoundAndChangesNoResult(t *testing.T) {
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Sim: sim.Config{Bytes: 64 << 20}})
	must(t, err)
	engine, err := device.New(device.Config{Runtime: rt, TracerProvider: noop.NewTracerProvider(), PlantOverrun: 2})
	must(t, err)
	for i, want := range []uint64{0, 1, 1, 1, 2} {
		rows := []int{1000, 1000, 1000, 1024, 1000}[i]
		keys := make([]uint32, rows)
		for i := range keys {
			keys[i] = uint32(rows - i)
		}
		got, err := engine.Sort(t.Context(), slices.Clone(keys))
		slices.Reverse(keys)
		if err != nil || !slices.Equal(got, keys) {
			t.Errorf("sort %d: wrong, or %v", i, err)
		}
		if n := rt.Findings().Counts()["oob-write"]; n != want {
			t.Errorf("%d findings after sort %d, want %d", n, i, want)
		}
	}
	for _, f := range rt.Findings().Recent() {
		if f.Victim.Tag != "service.sort" {
			t.Errorf("found of %q: %v", f.Victim.Tag, f)
		}
	}
	left, err := rt.Close(t.Context())
	must(t, err)
	if len(left.Leaks) > 0 || len(rt.Findings().Recent()) != 2 {
		t.Errorf("left over %+v; found %v", left, rt.Findings().Recent())
	}
}
