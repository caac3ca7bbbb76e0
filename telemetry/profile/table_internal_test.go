package profile

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestTagsMadeOfIdentifiersDoNotGrowAProfileAndLoseNoByte(t *testing.T) {
	fake := coretest.NewFake(0)
	for i := range 1000 {
		must.Get(fake.Allocate(context.Background(), core.Request{Bytes: 10, Tag: core.Tag(fmt.Sprint("row ", i))}))(t)
	}
	table := collect([]Source{{Resource: fake}}, 50)
	if len(table.samples) != 51 {
		t.Errorf("%d samples, want 50 and the rest", len(table.samples))
	}
	other := table.samples[key{tag: otherTag, noStream: true, state: core.Live}]
	if other.inuseObjects != 950 || other.inuseBytes != 9500 {
		t.Errorf("the rest is %+v", other)
	}
	var bytes int64
	for _, s := range build(table).Sample {
		bytes += s.Value[3]
	}
	if bytes != 10_000 {
		t.Errorf("the sum is %d", bytes)
	}
}

func TestSitesThatAllocateAreBoundedAndTheRestIsUnsampled(t *testing.T) {
	fake := coretest.NewFake(0)
	a := NewAllocations(fake)
	for i := range maxSites + 100 {
		must.Get(fake.Allocate(context.Background(), core.Request{Bytes: 10}))(t)
		a.Sampled(10, "tag", core.Stack{uintptr(i + 1)})
	}
	table := newTable(MaxSamples)
	a.collect(table, 0)
	rest := table.samples[key{noStream: true}]
	if len(a.sites) != maxSites || rest.allocObjects != 100 || rest.allocBytes != 1000 {
		t.Errorf("%d sites, and %+v is unsampled", len(a.sites), rest)
	}
}

func TestStacksDeeperThanWhatIsToldApartKeepTheirInnerFrames(t *testing.T) {
	deep := make(core.Stack, 40)
	for i := range deep {
		deep[i] = uintptr(i + 1)
	}
	table := stackTable{}
	f := table.intern(deep)
	if len(f.counters()) != maxFrames || f.counters()[0] != 1 || table.intern(deep[:maxFrames]) != f || table.intern(nil) != nil {
		t.Errorf("%d frames, from %d", len(f.counters()), f.counters()[0])
	}
}

// asked is a resource whose Stats somebody holds up.
type asked struct {
	*coretest.Fake
	asking, answer chan struct{}
}

func (a *asked) Stats() core.Stats {
	close(a.asking)
	<-a.answer
	return a.Fake.Stats()
}

// Who allocates does not wait for who takes a profile.
func TestAStackIsCountedWhileAProfileIsTaken(t *testing.T) {
	base := &asked{Fake: coretest.NewFake(0), asking: make(chan struct{}), answer: make(chan struct{})}
	a := NewAllocations(base)
	var taking sync.WaitGroup
	taking.Go(func() { a.collect(newTable(10), 0) })
	<-base.asking
	counted := make(chan struct{})
	go func() { a.Sampled(1, "a", core.CaptureStack(0)); close(counted) }()
	select {
	case <-counted:
	case <-time.After(time.Minute):
		t.Error("it waits for a profile that is being taken")
	}
	close(base.answer)
	taking.Wait()
	<-counted
}

// However a profile is parted, it has every site once.
func TestEverySiteIsCollectedOnceWhileOthersCome(t *testing.T) {
	fake := coretest.NewFake(0)
	a := NewAllocations(fake)
	const before = 3*glimpse + 7
	for i := range before {
		a.Sampled(uint64(i+1), core.Tag(fmt.Sprint(i)), core.Stack{1})
	}
	var adding sync.WaitGroup
	adding.Go(func() {
		for i := range 2 * before {
			a.Sampled(1, core.Tag(fmt.Sprint("late ", i)), core.Stack{1})
		}
	})
	table := newTable(maxSites)
	a.collect(table, 0)
	adding.Wait()
	for i := range before {
		var sum uint64
		for k, v := range table.samples {
			if k.tag == core.Tag(fmt.Sprint(i)) {
				sum += v.allocBytes
			}
		}
		if sum != uint64(i+1) {
			t.Errorf("site %d has %d bytes, want %d", i, sum, i+1)
		}
	}
}
