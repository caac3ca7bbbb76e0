package metrics_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// tagScene is what tags hold, a clock, and the series that a scrape sees.
type tagScene struct {
	*testing.T
	now  time.Time
	held map[core.Tag]uint64
	tags *metrics.TagSeries
	c    prometheus.Collector
}

func newTagScene(t *testing.T) *tagScene {
	s := &tagScene{T: t, now: time.Unix(1_000_000, 0), held: map[core.Tag]uint64{}, tags: metrics.NewTagSeries()}
	s.c = must.Get(metrics.NewCollector(metrics.Source{Device: &device{}, Holders: s.holders, Tags: s.tags}))(t)
	return s
}

func (s *tagScene) holders() (all []core.Holder) {
	for tag, bytes := range s.held {
		if bytes > 0 {
			all = append(all, core.Holder{Tag: tag, State: core.Live, Bytes: bytes, Blocks: 1})
		}
	}
	return all
}

// pass lets some seconds go by, with a look in each.
func (s *tagScene) pass(d time.Duration) {
	for range d / time.Second {
		s.now = s.now.Add(time.Second)
		s.tags.Look(s.now, s.holders())
	}
}

func (s *tagScene) series() map[string]float64 {
	s.Helper()
	return samples(s.T, s.c, "gpumem_tag_bytes")
}

// fill makes as many tags as there are places, of 1000 bytes each.
func (s *tagScene) fill() {
	for i := range metrics.MaxTags {
		s.held[core.Tag(fmt.Sprintf("old-%02d", i))] = 1000
	}
	s.pass(time.Second)
}

// A batch that frees all it has comes back to zero between runs, and its series
// has no gap.
func TestATagThatHoldsNothingIsZeroAndNotAbsent(t *testing.T) {
	s := newTagScene(t)
	for run := range 5 {
		s.tags.Used("batch") // as the budget says, before any look
		s.held["batch"] = uint64(1000 + run)
		if got, there := s.series()["batch"]; !there || got != float64(1000+run) {
			t.Errorf("run %d: %v (exported: %v)", run, got, there)
		}
		s.pass(3 * time.Second)
		s.held["batch"] = 0
		s.pass(2 * time.Hour)
		if got := s.series(); len(got) != 1 || got["batch"] != 0 {
			t.Errorf("after run %d: %v", run, got)
		}
	}
}

// The place of a tag that was idle for ten minutes goes to the largest of those
// outside; nobody's goes earlier.
func TestTheTagThatIsIdleLongestGivesItsPlaceFirst(t *testing.T) {
	s := newTagScene(t)
	s.fill()
	s.held["old-07"] = 0
	s.pass(time.Minute)
	s.held["old-09"] = 0
	s.held["old-11"] = 0
	s.held["large"], s.held["larger"] = 1500, 1900 // not twice as much as others
	s.pass(8*time.Minute + 58*time.Second)
	if got := s.series(); got["other"] != 3400 || len(got) != metrics.MaxTags+1 {
		t.Errorf("before anybody was idle for ten minutes: %d series, other %v", len(got), got["other"])
	}
	s.tags.Used("old-11") // a block that came and went between two looks
	s.pass(2 * time.Second)
	got := s.series()
	if _, there := got["old-07"]; there || got["larger"] != 1900 || got["other"] != 1500 {
		t.Errorf("after ten minutes: the idle tag is there: %v; larger %v, other %v", there, got["larger"], got["other"])
	}
	s.pass(time.Minute)
	got = s.series()
	if _, there := got["old-09"]; there || got["large"] != 1500 || got["other"] != 0 {
		t.Errorf("a minute later: the next idle tag is there: %v; large %v, other %v", there, got["large"], got["other"])
	}
	if zero, there := got["old-11"]; !there || zero != 0 {
		t.Error("a tag that was used between two looks lost its place as if idle")
	}
}

// A tag that leaks does not hide in the others because all places are in use.
func TestAMuchLargerTagTakesThePlaceOfASmallOne(t *testing.T) {
	s := newTagScene(t)
	s.fill()
	s.held["old-03"] = 10
	s.held["leak"] = 100_000
	s.pass(9*time.Minute + 58*time.Second)
	if got := s.series(); got["leak"] != 0 || got["other"] != 100_000 {
		t.Errorf("a tag lost its place within ten minutes: %v", got["leak"])
	}
	s.pass(2 * time.Minute)
	got := s.series()
	if _, there := got["old-03"]; there || got["leak"] != 100_000 || got["other"] != 10 {
		t.Errorf("the small tag is there: %v; leak %v, other %v", there, got["leak"], got["other"])
	}
	s.held["burst"] = 100_000 // in some seconds only
	for range 30 {
		s.pass(40 * time.Second)
		s.held["burst"] = 100_000 - s.held["burst"]
	}
	if _, there := s.series()["burst"]; there {
		t.Error("a tag that does not hold its memory for a minute took another's place")
	}
}

// Tags come, go, grow and shrink at random: no series ends within ten minutes of
// its begin, there are never too many, and the sums are right in every scrape.
func TestTagsAtRandomNeverFlap(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	s := newTagScene(t)
	began, ended := map[string]time.Time{}, 0
	const scrape = 20
	hours := 4
	if testing.Short() {
		hours = 1
	}
	for second := range hours * 3600 {
		for range 3 {
			tag := core.Tag(fmt.Sprint(random.IntN(200)))
			s.held[tag] = uint64(random.IntN(1 << uint(random.IntN(30))))
			if random.IntN(2) == 0 {
				s.held[tag] = 0
			} else if random.IntN(2) == 0 {
				s.tags.Used(tag)
			}
		}
		s.pass(time.Second)
		if second%scrape > 0 {
			continue
		}
		got, sum, want := s.series(), 0.0, 0.0
		for tag, bytes := range got {
			sum += bytes
			if tag != string(metrics.OtherTag) && bytes != float64(s.held[core.Tag(tag)]) {
				t.Fatalf("seed %d: %s is %v and holds %d", seed, tag, bytes, s.held[core.Tag(tag)])
			}
			if _, known := began[tag]; !known {
				began[tag] = s.now
			}
		}
		for _, bytes := range s.held {
			want += float64(bytes)
		}
		if sum != want || len(got) > metrics.MaxTags+1 {
			t.Fatalf("seed %d: %d series of %v bytes, want %v", seed, len(got), sum, want)
		}
		for tag, since := range maps.Clone(began) {
			if _, there := got[tag]; there {
				continue
			}
			if ended++; s.now.Sub(since) < 10*time.Minute-scrape*time.Second { // it began before it was first seen
				t.Errorf("seed %d: the series of %s ended after %v", seed, tag, s.now.Sub(since))
			}
			delete(began, tag)
		}
	}
	if ended == 0 {
		t.Errorf("seed %d: no series ever ended: the scene shows nothing", seed)
	}
}

// Tags are used, looked at and scraped at the same time: those that were used first
// all have series, and there are never too many.
func TestTagsAreUsedWhileOthersLookAndScrape(t *testing.T) {
	tags, stop := metrics.NewTagSeries(), make(chan struct{})
	holders := []core.Holder{{Tag: "held", State: core.Live, Bytes: 7, Blocks: 1}}
	c := must.Get(metrics.NewCollector(metrics.Source{Device: &device{}, Holders: func() []core.Holder { return holders }, Tags: tags}))(t)
	var users, others sync.WaitGroup
	for g := range 4 {
		users.Go(func() {
			for i := range 2000 {
				tags.Used(core.Tag(fmt.Sprint("common-", i%8)))
				tags.Used(core.Tag(fmt.Sprint(g, "-", i)))
			}
		})
	}
	others.Go(func() {
		for now := time.Unix(0, 0); ; now = now.Add(time.Second) {
			tags.Look(now, holders)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	others.Go(func() {
		for {
			if series := samples(t, c, "gpumem_tag_bytes"); len(series) > metrics.MaxTags+1 {
				t.Errorf("%d series", len(series))
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	users.Wait()
	close(stop)
	others.Wait()
	got := samples(t, c, "gpumem_tag_bytes")
	if len(got) != metrics.MaxTags+1 || got["held"]+got["other"] != 7 {
		t.Errorf("%d series; held %v, other %v", len(got), got["held"], got["other"])
	}
	if _, there := got["common-0"]; !there {
		t.Errorf("a tag that was among the first has no series: %v", got)
	}
}

// A million tags leave nothing behind: neither series nor memory.
func TestAMillionTagsLeaveNothing(t *testing.T) {
	s := newTagScene(t)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	see := func(from, to int) {
		for i := from; i < to; i++ {
			tag := core.Tag(fmt.Sprintf("request-%d", i))
			s.tags.Used(tag)
			if i%1000 == 0 {
				clear(s.held)
				s.held[tag] = 4096
				s.pass(time.Second)
			}
		}
	}
	see(0, 10_000)
	before, series := heap(), len(s.series())
	most := 1_000_000
	if testing.Short() {
		most /= 5
	}
	see(10_000, most)
	if grown := heap() - before; grown > 256<<10 {
		t.Errorf("%d tags left %d bytes on the heap", most, grown)
	}
	if n := len(s.series()); n != series || n != metrics.MaxTags+1 {
		t.Errorf("%d series, were %d", n, series)
	}
}

// Where nobody looks at the tags, scrapes do: a tag that was seen keeps its series.
func TestACollectorOfItsOwnKeepsTagsToo(t *testing.T) {
	holders := []core.Holder{{Tag: "a", State: core.Live, Bytes: 5, Blocks: 1}}
	c := must.Get(metrics.NewCollector(metrics.Source{Device: &device{}, Holders: func() []core.Holder { return holders }}))(t)
	first := samples(t, c, "gpumem_tag_bytes")
	holders = nil
	second := samples(t, c, "gpumem_tag_bytes")
	if first["a"] != 5 || !slices.Equal(slices.Collect(maps.Keys(second)), []string{"a"}) || second["a"] != 0 {
		t.Errorf("first %v, then %v", first, second)
	}
}

// Of memory that comes and goes between looks and scrapes the metric says who held
// it when most was live, for a whole minute and not longer.
func TestWhoHeldTheMemoryAtThePeakIsSeen(t *testing.T) {
	s := newTagScene(t)
	glance := func(after time.Duration, sort, join uint64) map[string]float64 {
		t.Helper()
		s.now = s.now.Add(after)
		s.held["sort"], s.held["join"] = sort, join
		s.tags.Used("sort")
		s.tags.Used("join")
		s.tags.Glance(s.now, s.holders())
		return samples(t, s.c, "gpumem_tag_window_peak_bytes")
	}
	s.now = time.Unix(6000, 0)
	for _, step := range []struct {
		after      time.Duration
		sort, join uint64 // held now
		at         [2]float64
	}{
		{0, 0, 0, [2]float64{0, 0}},
		{time.Second, 300, 100, [2]float64{300, 100}},
		{time.Millisecond, 0, 350, [2]float64{300, 100}}, // a tag's own high is not the peak
		{time.Second, 0, 0, [2]float64{300, 100}},
		{time.Minute, 50, 0, [2]float64{300, 100}}, // the last whole minute's
		{time.Second, 100, 400, [2]float64{100, 400}},
		{time.Minute, 0, 0, [2]float64{100, 400}},
		{time.Minute, 0, 7, [2]float64{0, 7}},
		{5 * time.Minute, 0, 0, [2]float64{0, 0}}, // a process that was stopped
	} {
		if got := glance(step.after, step.sort, step.join); got["sort"] != step.at[0] || got["join"] != step.at[1] {
			t.Errorf("%+v: %v", step, got)
		}
	}
}
