package doctor

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestTheSelfTestPassesOnTheSimulatedDevice(t *testing.T) {
	for _, resource := range []fencepost.Backend{fencepost.Async, fencepost.Pool, fencepost.Direct} {
		got := Test(t.Context(), fencepost.Config{Device: fencepost.Sim, Resource: resource})
		if !got.OK || got.Step != "done" || got.Device.Kind != fencepost.Sim || got.Budget == 0 {
			t.Errorf("%s: %+v", resource, got)
		}
	}
}

func TestTheSelfTestSaysWhatThePoolHas(t *testing.T) {
	for resource, want := range map[fencepost.Backend]string{
		fencepost.Async: `pool the driver's, \S+ MiB held, \S+ \S+ of it cached result`,
		fencepost.Pool:  `pool our own, \S+ MiB held, \S+ \S+ of it cached, \S+ \S+ fragmented, at most 64.0 MiB result`,
	} {
		got := Test(t.Context(), fencepost.Config{Device: fencepost.Sim, Resource: resource, Pool: cuda.PoolConfig{Limit: 64 << 20}})
		if p := got.Pool; p == nil || p.Reserved == 0 || p.Cached == 0 || p.Cached > p.Reserved || p.Fragmented > p.Cached {
			t.Errorf("%s: %+v", resource, p)
		}
		if text := resultText(got); !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%s: %s", resource, text)
		}
	}
	if got := Test(t.Context(), fencepost.Config{Device: fencepost.Sim, Resource: fencepost.Direct}); got.Pool != nil || strings.Contains(resultText(got), "pool") {
		t.Errorf("direct: %+v", got)
	}
}

// lying says that its pools have handed out more than they have.
type lying struct{ driver.Driver }

func (l lying) Unwrap() driver.Driver { return l.Driver }

func (l lying) PoolStats(p driver.Pool) (driver.PoolStats, error) {
	st, err := l.Driver.PoolStats(p)
	st.Used += 4096
	return st, err
}

func TestTheSelfTestComparesTheBooksWithThePool(t *testing.T) {
	device := must.Get(sim.Open(sim.Config{}))(t)
	defer func() { _ = device.Close() }()
	got := Test(t.Context(), fencepost.Config{Driver: lying{device}, Resource: fencepost.Async})
	if got.OK || got.Step != "compare the books with the pool" || !strings.Contains(got.Error, "by -4096 bytes") {
		t.Errorf("%+v", got)
	}
}

func TestTheSelfTestSaysWhereItFailed(t *testing.T) {
	got := Test(t.Context(), fencepost.Config{Device: fencepost.Sim, Budget: 64})
	if got.OK || got.Step != "allocate" || !strings.Contains(got.Error, "budget") {
		t.Errorf("%+v", got)
	}
}

func TestTheSelfTestNeedsNoMoreThanOneStream(t *testing.T) {
	t.Setenv("FENCEPOST_STREAMS", "1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, resource := range []fencepost.Backend{fencepost.Async, fencepost.Direct} {
		if got := Test(ctx, fencepost.Config{Device: fencepost.Sim, Resource: resource}); !got.OK {
			t.Errorf("%s: %+v", resource, got)
		}
	}
}

func TestRedZonesAreVerifiedWhateverTheEnvironmentSays(t *testing.T) {
	t.Setenv("FENCEPOST_GUARD", "off")
	got := Test(t.Context(), fencepost.Config{Device: fencepost.Sim})
	if text := resultText(got); !got.OK || !strings.Contains(text, "red zones verified") {
		t.Errorf("%+v\n%s", got, text)
	}
}

// The budget has room for the block and for nothing around it.
func TestRedZonesThatWereNotThereAreNotCalledVerified(t *testing.T) {
	got := Test(t.Context(), fencepost.Config{Device: fencepost.Sim, Budget: 4 * words})
	if text := resultText(got); !got.OK || got.RedZones || strings.Contains(text, "red zones") {
		t.Errorf("%+v\n%s", got, text)
	}
}

// resultText is what is printed of a self-test, on one line.
func resultText(t SelfTest) string {
	var out strings.Builder
	(&Report{SelfTest: t}).printSelfTest(printer{&out})
	return strings.Join(strings.Fields(out.String()), " ")
}
