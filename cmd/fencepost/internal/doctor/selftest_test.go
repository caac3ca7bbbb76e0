package doctor

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
)

func TestTheSelfTestPassesOnTheSimulatedDevice(t *testing.T) {
	for _, resource := range []string{fencepost.Async, fencepost.Direct} {
		got := Test(t.Context(), fencepost.Config{Device: fencepost.Sim, Resource: resource})
		if !got.OK || got.Step != "done" || got.Device.Kind != fencepost.Sim || got.Budget == 0 {
			t.Errorf("%s: %+v", resource, got)
		}
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
	for _, resource := range []string{fencepost.Async, fencepost.Direct} {
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
