package core_test

import (
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

func TestAnAccountHasItsPeakAndBytesTimesSeconds(t *testing.T) {
	a := core.NewAccount()
	a.Change(100, 128, true)
	held := time.Now()
	a.Change(50, 64, true)
	a.Change(-50, -64, false)
	time.Sleep(2 * time.Millisecond)
	least := time.Since(held).Seconds()
	a.Change(-100, -128, false)
	p := a.Peak()
	if p.Requested != 150 || p.Bytes != 192 || p.Tags != nil {
		t.Errorf("the peak is %+v", p)
	}
	const clock = 50e-6 // the error of a few readings, in seconds
	if p.RequestedSeconds < 100*(least-clock) || p.RequestedSeconds > 150*(p.Elapsed.Seconds()+clock) || p.ByteSeconds < 128*(least-clock) {
		t.Errorf("100 of 128 bytes for at least %g s are %+v", least, p)
	}
	if later := a.Peak(); later.RequestedSeconds != p.RequestedSeconds {
		t.Errorf("what was given back takes %g byte-seconds more", later.RequestedSeconds-p.RequestedSeconds)
	}
	if (*core.Account)(nil).Peak().Bytes != 0 {
		t.Error("a nil account has a peak")
	}
}

func TestAnAccountIsExactUnderManyHands(t *testing.T) {
	a := core.NewAccount()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 2000 {
				a.Change(3, 4, true)
				a.Change(-3, -4, false)
			}
			a.Change(3, 4, true)
		})
	}
	all.Wait()
	if p := a.Peak(); p.Requested != 12 || p.Bytes != 16 {
		t.Errorf("the peak is %+v", p)
	}
}
