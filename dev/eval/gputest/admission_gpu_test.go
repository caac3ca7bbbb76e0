package gputest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/admit"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/examples/service/kernels"
	"github.com/fencepost-gpu/fencepost/internal/workload"
)

// admissionData is a table to sort, one to join it with, and what the CPU says of both.
type admissionData struct {
	keys, values, right []uint32
	sorted              []uint32
	partners            int // how many sorted keys have one
}

func newAdmissionData(rng *rand.Rand, rows int) admissionData {
	d := admissionData{keys: make([]uint32, rows), values: make([]uint32, rows), right: make([]uint32, rows/2)}
	for i := range d.right {
		d.right[i] = uint32(2*i+1) * 2654435761
	}
	for i := range d.keys {
		if d.keys[i] = rng.Uint32(); rng.IntN(2) == 0 {
			d.keys[i] = d.right[rng.IntN(len(d.right))]
		}
	}
	d.sorted = slices.Sorted(slices.Values(d.keys))
	has := map[uint32]bool{}
	for _, k := range d.right {
		has[k] = true
	}
	for _, k := range d.keys {
		if has[k] {
			d.partners++
		}
	}
	return d
}

// admissionJob sorts, and joins if it is to, on two streams.
func admissionJob(j *fencepost.Job, k *kernels.Kernels, d *admissionData, join bool) error {
	n := len(d.keys)
	keys, err := fencepost.Upload(j, d.keys)
	values, err2 := fencepost.Upload(j, d.values)
	otherKeys, err3 := fencepost.Alloc[uint32](j, n)
	otherValues, err4 := fencepost.Alloc[uint32](j, n)
	counts, err5 := fencepost.Alloc[uint32](j, kernels.Counters(n))
	other, err6 := j.Fork()
	if err := errors.Join(err, err2, err3, err4, err5, err6); err != nil {
		return err
	}
	for pass := range 32 / kernels.DigitBits {
		shift := fencepost.Value(uint32(pass * kernels.DigitBits))
		rows := fencepost.Value(uint32(n))
		if err := errors.Join(
			j.Launch(k.Histogram, kernels.Sliced(n), fencepost.Reads(keys), fencepost.Writes(counts), rows, shift),
			other.Launch(k.Scan, kernels.OneBlock(), fencepost.ReadWrites(counts), fencepost.Value(uint32(kernels.Counters(n)))),
			j.Launch(k.Scatter, kernels.Sliced(n), fencepost.Reads(keys), fencepost.Reads(values), fencepost.Writes(otherKeys), fencepost.Writes(otherValues), fencepost.Reads(counts), rows, shift),
		); err != nil {
			return err
		}
		keys, values, otherKeys, otherValues = otherKeys, otherValues, keys, values
	}
	sorted, err := fencepost.Download(j, keys)
	if err == nil && !slices.Equal(sorted, d.sorted) {
		return errors.New("the keys are not sorted")
	}
	if err != nil || !join {
		return err
	}
	return admissionJoin(j, k, d, keys)
}

func admissionJoin(j *fencepost.Job, k *kernels.Kernels, d *admissionData, keys *cuda.Slice[uint32]) error {
	n, m := len(d.keys), len(d.right)
	words := kernels.SlotWords * kernels.Slots(m)
	right, err := fencepost.Upload(j, d.right)
	table, err2 := fencepost.Alloc[uint32](j, words)
	joined, err3 := fencepost.Alloc[uint32](j, n)
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	mask := fencepost.Value(uint32(kernels.Slots(m) - 1))
	if err := errors.Join(
		j.Launch(k.Clear, kernels.Rows(words), fencepost.Writes(table), fencepost.Value(uint32(words))),
		j.Launch(k.Build, kernels.Rows(m), fencepost.Reads(right), fencepost.Reads(right), fencepost.ReadWrites(table), fencepost.Value(uint32(m)), mask),
		j.Launch(k.Probe, kernels.Rows(n), fencepost.Reads(keys), fencepost.Reads(table), fencepost.Writes(joined), fencepost.Value(uint32(n)), mask),
	); err != nil {
		return err
	}
	found, err := fencepost.Download(j, joined)
	partners := 0
	for _, v := range found {
		if v != kernels.NoPartner {
			partners++
		}
	}
	if err == nil && partners != d.partners {
		return errors.New("the join found other partners")
	}
	return err
}

// admissionRun is what came of a service's jobs.
type admissionRun struct {
	failed, ended      int
	known, under, over uint64
	predicted          uint64
	took               time.Duration
	waits              []time.Duration
}

// admissionRun runs as many jobs at once as most says. The first so many of a kind may fail.
func (b *bench) admissionRun(k *kernels.Kernels, data []admissionData, most, may int, options ...fencepost.JobOption) (s admissionRun) {
	b.Helper()
	var mu sync.Mutex
	var workers sync.WaitGroup
	ended := map[string]int{}
	slots := make(chan struct{}, most)
	begin := time.Now()
	for worker := range 16 {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 37))
			for range scaled(40, 4) {
				d, name := &data[rng.IntN(len(data))], []string{"sort", "join"}[rng.IntN(2)]
				slots <- struct{}{}
				asked := time.Now()
				var job *fencepost.Job
				var waited time.Duration
				err := b.Do(ctx, name, func(j *fencepost.Job) error {
					job, waited = j, time.Since(asked)
					return admissionJob(j, k, d, name == "join")
				}, append(options, fencepost.Shape("rows", len(d.keys)))...)
				<-slots
				mu.Lock()
				ended[name]++
				s.ended++
				switch {
				case err != nil && !errors.Is(err, core.ErrOutOfBudget) && !errors.Is(err, core.ErrOutOfMemory):
					b.Error(err)
				case err != nil && ended[name] > may:
					s.failed++
					if len(options) > 0 {
						b.Logf("refused as number %d of its kind, with %d rows: %v; %+v", ended[name], len(d.keys), err, job.Account())
					}
				}
				if a := job.Account(); a.Predicted > 0 && err == nil {
					s.known, s.predicted = s.known+1, s.predicted+a.Predicted
					if a.Requested > a.Predicted {
						s.under++
					} else {
						s.over += a.Predicted - a.Requested
					}
				}
				s.waits = append(s.waits, waited)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	s.took = time.Since(begin)
	slices.Sort(s.waits)
	return s
}

// TestAdmissionOnTheGPU has sorts and joins of mixed sizes of 16 workers share a quarter, a half and three quarters of the memory that
// all at once take: with what Admit has learned, with the best semaphore of 1 to 16 with which no job fails, and with neither.
func TestAdmissionOnTheGPU(t *testing.T) {
	learned := new(admit.Model)
	b := newBench(t, fencepost.Config{Guard: "off", Streams: 64, ReservePasses: 8, Learned: learned})
	module, err := workload.Load(b.Driver())
	must(t, err)
	t.Cleanup(func() { must(t, module.Unload()) })
	k, err := kernels.Find(module)
	must(t, err)
	rng := rand.New(rand.NewPCG(37, 0))
	var data []admissionData
	for range 24 {
		data = append(data, newAdmissionData(rng, scaled(100_000, 100)+rng.IntN(scaled(900_000, 900))))
	}
	b.admissionRun(k, data, 16, 0) // the driver compiles, and the pool grows
	stretch := b.Measure(ctx)
	all := b.admissionRun(k, data, 16, 0)
	peak := stretch.Stop().Requested
	if all.failed > 0 {
		t.Fatalf("with all memory %d of %d jobs were refused", all.failed, all.ended)
	}
	for _, share := range []uint64{25, 50, 75} {
		b.Budget().SetLimit(peak * share / 100)
		best, bestMost := admissionRun{took: 1 << 62}, 0
		for most := 1; most <= scaled(16, 1); most++ {
			if s := b.admissionRun(k, data, most, 0); s.failed == 0 && s.took < best.took {
				best, bestMost = s, most
			}
		}
		free := b.admissionRun(k, data, 16, 0)
		learned.Forget("sort")
		learned.Forget("join")
		learning := b.admissionRun(k, data, 16, 20, fencepost.Admit())
		s := b.admissionRun(k, data, 16, 0, fencepost.Admit())
		t.Logf("%d %% of %d MiB: admission %v (%.2f of the best semaphore's speed; while it learned %v), %d of %d fail, %d of %d under-reserved, %.1f %% over-reserved, 99 %% wait less than %v; semaphore of %d: %v, 99 %% %v; neither: %d fail",
			share, peak>>20, s.took, best.took.Seconds()/s.took.Seconds(), learning.took, s.failed, s.ended, s.under, s.known, 100*float64(s.over)/float64(max(1, s.predicted)), s.waits[len(s.waits)*99/100],
			bestMost, best.took, best.waits[len(best.waits)*99/100], free.failed)
		if failed := learning.failed + s.failed; failed > 0 {
			t.Errorf("with %d %%: %d jobs were refused", share, failed)
		}
	}
}
