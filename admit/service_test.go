package admit_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost-gpu/fencepost/admit"
)

// service is one whose workers do jobs of mixed sizes with a device's memory, in simulated time.
type service struct {
	limit uint64 // the device's; 0 is without end
	enter func(job string, s admit.Shape) (observe func(uint64), leave func(whole bool))

	mu         sync.Mutex
	used, peak uint64
	jobs       int // how many have begun
	failed     int // how many after the first of each kind did not get what they needed
	took       time.Duration
	waits      []time.Duration
}

const workers, jobsOfAWorker = 16, 100

// kindsOfJobs are programs that the service runs, a third each.
var kindsOfJobs = []program{programs[3], programs[4], programs[8]}

// run does all jobs, in a bubble.
func (s *service) run() {
	var wg sync.WaitGroup
	begin := time.Now()
	for worker := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 37))
			for range jobsOfAWorker {
				p := kindsOfJobs[r.IntN(len(kindsOfJobs))]
				size := p.sizes(r)
				size[0], size[1] = 1000+size[0]%10_000, size[1]%2000
				needs := uint64(p.needs(float64(size[0]), float64(size[1])) * (1 + r.Float64()/50) * (1 << 20))
				asked := time.Now()
				observe, leave := s.enter(p.name, admit.ShapeOf("rows", size[0]).And("columns", size[1]))
				s.begin(time.Since(asked))
				took := 2*time.Millisecond + time.Duration(needs/100_000)*time.Microsecond
				time.Sleep(took / 2)
				ok := s.use(needs)
				observe(needs)
				if ok {
					time.Sleep(took / 2)
					s.use(-needs)
				}
				leave(ok)
			}
		})
	}
	wg.Wait()
	s.took = time.Since(begin)
}

func (s *service) begin(waited time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs++
	s.waits = append(s.waits, waited)
}

// use takes bytes of the device, or fails.
func (s *service) use(bytes uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used+bytes > s.limit && s.limit > 0 && int64(bytes) > 0 {
		if s.jobs > 20*len(kindsOfJobs) {
			s.failed++
		}
		return false
	}
	s.used += bytes
	s.peak = max(s.peak, s.used)
	return true
}

// p99 is what all but one wait in a hundred are shorter than.
func (s *service) p99() time.Duration {
	slices.Sort(s.waits)
	return s.waits[len(s.waits)*99/100]
}

// withSemaphore lets so many jobs in.
func withSemaphore(t *testing.T, limit uint64, most int) *service {
	slots := make(chan struct{}, most)
	s := &service{limit: limit, enter: func(string, admit.Shape) (func(uint64), func(bool)) {
		slots <- struct{}{}
		return func(uint64) {}, func(bool) { <-slots }
	}}
	synctest.Test(t, func(*testing.T) {
		slots = make(chan struct{}, most)
		s.run()
	})
	return s
}

// TestAServiceBehindAGateRunsAsFastAsBehindTheBestSemaphore has a quarter, a half and three quarters of the memory that all
// jobs at once take. The best semaphore is found by trying all, and knows the jobs; the gate learns.
func TestAServiceBehindAGateRunsAsFastAsBehindTheBestSemaphore(t *testing.T) {
	all := withSemaphore(t, 0, workers)
	for _, share := range []uint64{25, 50, 75} {
		limit := all.peak * share / 100
		var best *service
		bestMost := 0
		for most := 1; most <= workers; most++ {
			if s := withSemaphore(t, limit, most); s.failed == 0 && (best == nil || s.took < best.took) {
				best, bestMost = s, most
			}
		}
		s := &service{limit: limit}
		synctest.Test(t, func(t *testing.T) {
			g, err := admit.New(admit.Config{Limit: limit, Passes: 8})
			if err != nil {
				t.Fatal(err)
			}
			s.enter = func(job string, shape admit.Shape) (func(uint64), func(bool)) {
				a, err := g.Enter(t.Context(), job, shape)
				if err != nil {
					t.Error(err)
				}
				return func(bytes uint64) { _ = a.Observe(bytes) }, func(whole bool) {
					if whole {
						a.Leave()
					}
					a.Abort()
				}
			}
			s.run()
			t.Logf("%d %% of %d MiB: %+v", share, all.peak>>20, g.Stats())
		})
		t.Logf("%d %%: the gate takes %v, %d fail, 99 %% wait less than %v; the best semaphore, of %d, takes %v, %v; all at once %d fail", share,
			s.took, s.failed, s.p99(), bestMost, best.took, best.p99(), withSemaphore(t, limit, workers).failed)
		if s.failed > 0 || s.took*9 > best.took*10 {
			t.Errorf("with %d %%: %d failed, and it took %v where the best semaphore takes %v", share, s.failed, s.took, best.took)
		}
	}
}
