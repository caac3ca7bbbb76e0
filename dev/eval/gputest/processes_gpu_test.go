package gputest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// sharesVariable has the UUID of the device that a process was started to
// share; a simulated one has to be told.
const sharesVariable = "GPUTEST_SHARES"

const sharedBytes = 512 << 20

// sharer is what the other process says of itself.
type sharer struct {
	UUID, PCIBusID string
	Held           uint64
}

// A second process has a runtime of its own on the device: the device is the
// same to both, and what the second one holds is missing to the first.
func TestARuntimeOfAnotherProcessIsOnTheSameDevice(t *testing.T) {
	if uuid, started := os.LookupEnv(sharesVariable); started {
		share(t, uuid)
		return
	}
	h := gpu(t)
	own, err := h.Properties()
	must(t, err)
	watch := metrics.NewMemoryWatch(cuda.NewDirectResource(h.Driver), metrics.MemoryWatchConfig{Interval: -1})
	defer func() { must(t, watch.Close(ctx)) }()
	before := watch.Last()
	other, end := startSharer(t, own.UUID)
	defer end()
	must(t, watch.Refresh())
	after := watch.Last()
	t.Logf("%s at %s; the other process: %+v; foreign before %d, after %d of %d", own.UUID, own.PCIBusID, other, before.Foreign, after.Foreign, after.Total)
	if own.UUID == "" || other.UUID != own.UUID || other.PCIBusID != own.PCIBusID {
		t.Errorf("this process has %q at %q, the other says %+v", own.UUID, own.PCIBusID, other)
	}
	if other.Held < sharedBytes {
		t.Errorf("the other process holds %d bytes, of which it allocated %d", other.Held, sharedBytes)
	}
	if h.sim == nil && (after.Total != before.Total || after.Foreign < before.Foreign+other.Held) {
		t.Errorf("the other process holds %d bytes, and to this one %+v became %+v", other.Held, before, after)
	}
}

// startSharer starts the other process, and returns what it says once it holds
// its memory; end lets it go and waits for it.
func startSharer(t *testing.T, uuid string) (said sharer, end func()) {
	t.Helper()
	process, cancel := selfCommand(t, []string{"-test.v", "-test.count=1", "-test.run=^" + t.Name() + "$", "-test.timeout=5m"}, sharesVariable+"="+uuid)
	process.Stderr = os.Stderr
	input, err := process.StdinPipe()
	must(t, err)
	output, err := process.StdoutPipe()
	must(t, err)
	must(t, process.Start())
	end = func() {
		defer cancel()
		_ = input.Close()
		if err := process.Wait(); err != nil {
			t.Errorf("the other process ended with %v", err)
		}
	}
	var log strings.Builder
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), sharesVariable); found {
			must(t, json.Unmarshal([]byte(text), &said))
			return said, end
		}
		log.WriteString(lines.Text() + "\n")
	}
	end()
	t.Fatalf("the other process said nothing of itself:\n%s", log.String())
	return said, nil
}

// share holds memory of the device until its input ends.
func share(t *testing.T, uuid string) {
	cfg := fencepost.Config{Device: fencepost.CUDA, Guard: "off"}
	if dryRun {
		cfg.Device, cfg.Sim = fencepost.Sim, sim.Config{UUID: uuid}
	}
	rt, err := fencepost.Open(ctx, cfg)
	must(t, err)
	b, err := rt.Allocate(ctx, core.Request{Bytes: sharedBytes, Tag: "shared"})
	must(t, err)
	for deadline := time.Now().Add(20 * time.Second); rt.DeviceMemory().Owned < sharedBytes && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	device := rt.DeviceChoice()
	text, err := json.Marshal(sharer{device.UUID, device.PCIBusID, rt.DeviceMemory().Owned})
	must(t, err)
	fmt.Printf("%s%s\n", sharesVariable, text)
	_, _ = os.Stdin.Read(make([]byte, 1)) // the other process closes it
	_, err = rt.Deallocate(ctx, b.ID)
	must(t, err)
	_, err = rt.Close(ctx)
	must(t, err)
}
