package fit_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/fit"
)

const mib = 1 << 20

// jobLog is a log of jobs, each of which has one block on a stream of its own, and of one block that is no job's.
type jobLog struct {
	lines      []string
	generation int
}

func (l *jobLog) block(op string, at time.Duration, stream int, tag string, bytes uint64, generation int) {
	l.lines = append(l.lines, fmt.Sprintf(`{"op":%q,"mono_ns":%d,"stream":%d,"generation":%d,"tag":%q,"requested":%d,"bytes":%[6]d}`, op, at, stream, generation, tag, bytes))
}

func (l *jobLog) job(start, long, waited time.Duration, bytes uint64) {
	l.generation++
	g := l.generation
	l.block("allocate", start+waited, g, "job", bytes, g)
	l.block("deallocate", start+long, g, "job", bytes, g)
	l.lines = append(l.lines, fmt.Sprintf(`{"op":"job","mono_ns":%d,"duration_ns":%d,"stream":%d,"tag":"job","bytes":%d,"job":{"waited_for_memory_ns":%d}}`, start, long, g, bytes, waited))
}

func (l *jobLog) predict(t *testing.T, m fit.Machine) *fit.Report {
	t.Helper()
	return must.Get(fit.Predict(t.Context(), read(t, strings.Join(l.lines, "\n")), m))(t)
}

// Three jobs of 10 MiB come at once, of which two fit beside 10 MiB of no job; a fourth never fits.
func TestJobsWaitForTheirPeaks(t *testing.T) {
	l := &jobLog{generation: 10}
	l.block("allocate", 0, 1, "weights", 10*mib, 1)
	for i := range 3 {
		l.job(time.Duration(i), time.Second, 0, 10*mib)
	}
	l.job(5, time.Second, 0, 50*mib)
	asRecorded := l.predict(t, fit.Machine{Memory: 30 * mib})
	if asRecorded.Fits || asRecorded.Refused == 0 || asRecorded.Jobs.Refused != 1 {
		t.Errorf("%+v, %+v", asRecorded, asRecorded.Jobs)
	}
	r := l.predict(t, fit.Machine{Memory: 30 * mib, Jobs: 8})
	want := fit.Jobs{Count: 4, AtOnce: 8, Most: 2, Others: 10 * mib, Reserved: 20 * mib, Refused: 1, Waited: 1, WaitMax: time.Second - 2, WaitP99: time.Second - 2, NeedsForAny: 60 * mib, NeedsForAll: 90 * mib}
	if *r.Jobs != want || r.Fits || r.Refused != 0 || r.Unplayed != 1 || r.NeedsLeast != 60*mib || r.Needs < 60*mib {
		t.Errorf("%+v\n%+v", r, *r.Jobs)
	}
	one := l.predict(t, fit.Machine{Memory: r.Needs, Jobs: 1})
	if !one.Fits || one.Jobs.Most != 1 || one.Jobs.WaitMax != 3*time.Second-5 || one.Jobs.NeedsForAll != 60*mib || one.PeakLive != 60*mib {
		t.Errorf("%+v\n%+v", one, *one.Jobs)
	}
}

// Whatever the jobs are: as many are in as the bytes and the number allow, those are refused that never fit, nobody waits where
// all fit, and with any less somebody does.
func TestAnAdmissionKeepsItsWord(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	rounds := 20
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		l := &jobLog{}
		starts, never := []time.Duration{}, 0
		memory := uint64(8+random.IntN(32)) * 2 * mib // pages, which leave no pieces
		for range 1 + random.IntN(20) {
			starts = append(starts, time.Duration(random.IntN(1000)))
		}
		slices.Sort(starts)
		for _, start := range starts {
			bytes := uint64(1+random.IntN(20)) * 2 * mib
			if bytes > memory {
				never++
			}
			waited := time.Duration(random.IntN(50))
			l.job(start, waited+time.Duration(1+random.IntN(500)), waited, bytes)
		}
		atOnce := 1 + random.IntN(6)
		r := l.predict(t, fit.Machine{Memory: memory, Jobs: atOnce})
		if j := r.Jobs; j.Refused != never || j.Most > atOnce || j.Reserved > memory || r.Refused > 0 ||
			r.PeakLive > j.Reserved || r.Fits != (memory >= r.Needs) || r.NeedsLeast != j.NeedsForAny {
			t.Errorf("%d bytes, %d at once: %+v\n%+v", memory, atOnce, r, *j)
		}
		if needed := l.predict(t, fit.Machine{Jobs: atOnce}); needed.PeakLive > needed.Needs ||
			needed.PeakReserved > needed.Needs {
			t.Errorf("it needs %d bytes and has %d live and %d held at once", needed.Needs, needed.PeakLive, needed.PeakReserved)
		}
		all := l.predict(t, fit.Machine{Memory: r.Jobs.NeedsForAll, Jobs: 100})
		if free := l.predict(t, fit.Machine{Memory: all.Jobs.NeedsForAll, Jobs: 100}); free.Jobs.Waited != 0 || free.Jobs.Reserved != free.Jobs.NeedsForAll {
			t.Errorf("%+v", *free.Jobs)
		}
		if less := all.Jobs.NeedsForAll - 1; less >= all.Jobs.NeedsForAny {
			if short := l.predict(t, fit.Machine{Memory: less, Jobs: 100}); short.Jobs.Waited == 0 {
				t.Errorf("%+v", *short.Jobs)
			}
		}
	}
}
