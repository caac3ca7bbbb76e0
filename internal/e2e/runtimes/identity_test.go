package runtimes_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// An instance of a GPU, as the driver names it.
const (
	instanceUUID  = "MIG-b5c627b3-7ab5-8097-6f1f-5b9119c15a8e"
	instanceBusID = "5a8e:1f:00.0"
)

func TestWhicheverWayOneLooksItIsTheSameDevice(t *testing.T) {
	t.Setenv("NODE_NAME", "node-7")
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "hunt", Incidents: t.TempDir(), Sim: sim.Config{UUID: instanceUUID}})
	want := `gpumem_device_info{device="0",device_kind="sim",device_name="Fencepost simulated GPU",host="node-7",pci_bus_id="` + instanceBusID + `",uuid="` + instanceUUID + `"} 1`
	if text := e2e.Gather(t, rt); !strings.Contains(text, want) {
		t.Errorf("the metrics lack %s", want)
	}
	if c := rt.DeviceChoice(); c.UUID != instanceUUID || c.PCIBusID != instanceBusID {
		t.Errorf("the choice is %+v", c)
	}
	if _, report := e2e.Reported(t, rt.HealthHandler()); report.UUID != instanceUUID {
		t.Errorf("the health is of %+v", report)
	}
	h := must.Get(fencepost.NewHandler(fencepost.HandlerConfig{Runtimes: []*fencepost.Runtime{rt}}))(t)
	var live struct{ Device struct{ UUID string } }
	e2e.Succeed(t, "live view", json.Unmarshal(e2e.Request(h, http.MethodGet, "/debug/gpumem/state", "").Body.Bytes(), &live))
	if live.Device.UUID != instanceUUID {
		t.Errorf("the live view is of %+v", live)
	}
	e2e.Overrun(t, rt, "victim")
	e2e.Succeed(t, "flush", rt.Incidents().Flush(t.Context()))
	if in := e2e.OnlyIncident(t, rt); in.Device.UUID != instanceUUID || in.Device.PCIBusID != instanceBusID {
		t.Errorf("the incident is of %+v", in.Device)
	}
}

func TestTheHostIsTheMachineWhereNobodyNamesANode(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	host := must.Get(os.Hostname())(t)
	if text := e2e.Gather(t, e2e.Open(t, fencepost.Config{})); !strings.Contains(text, `host="`+host+`"`) {
		t.Errorf("no metric names %s", host)
	}
}

// nameless is a driver that cannot say which device it is.
type nameless struct{ driver.Driver }

func (n nameless) Unwrap() driver.Driver { return n.Driver }

func (n nameless) Properties() (driver.Properties, error) {
	p, err := n.Driver.Properties()
	p.UUID, p.PCIBusID = "", ""
	return p, err
}

func TestADeviceThatCannotSayWhichItIsWorks(t *testing.T) {
	device := must.Get(sim.Open(sim.Config{}))(t)
	t.Cleanup(func() { e2e.Succeed(t, "close", device.Close()) })
	rt := e2e.Open(t, fencepost.Config{Driver: nameless{device}, Guard: "hunt"})
	e2e.Succeed(t, "life", e2e.Life(t.Context(), rt))
	for _, want := range []string{`pci_bus_id="",uuid=""} 1`, "gpumem_device_held_bytes{", "gpumem_device_total_bytes{"} {
		if text := e2e.Gather(t, rt); !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	code, body := e2e.Answer(rt.HealthHandler(), http.MethodGet)
	if code != http.StatusOK || strings.Contains(body, "uuid") {
		t.Errorf("%d %s", code, body)
	}
}
