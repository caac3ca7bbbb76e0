package fencepost_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// An instance of a GPU, as the driver names it.
const (
	instanceUUID  = "MIG-b5c627b3-7ab5-8097-6f1f-5b9119c15a8e"
	instanceBusID = "5a8e:1f:00.0"
)

func TestWhicheverWayOneLooksItIsTheSameDevice(t *testing.T) {
	t.Setenv("NODE_NAME", "node-7")
	rt := openDirty(t, fencepost.Config{Guard: "hunt", Incidents: t.TempDir(), Sim: sim.Config{UUID: instanceUUID}})
	want := `gpumem_device_info{device="0",device_kind="sim",device_name="Fencepost simulated GPU",host="node-7",pci_bus_id="` + instanceBusID + `",uuid="` + instanceUUID + `"} 1`
	if text := gather(t, rt); !strings.Contains(text, want) {
		t.Errorf("the metrics lack %s", want)
	}
	if c := rt.DeviceChoice(); c.UUID != instanceUUID || c.PCIBusID != instanceBusID {
		t.Errorf("the choice is %+v", c)
	}
	if _, report := reported(t, rt.HealthHandler()); report.UUID != instanceUUID {
		t.Errorf("the health is of %+v", report)
	}
	h, err := fencepost.NewHandler(fencepost.HandlerConfig{Runtimes: []*fencepost.Runtime{rt}})
	succeed(t, "handler", err)
	var live struct{ Device struct{ UUID string } }
	succeed(t, "live view", json.Unmarshal(request(h, http.MethodGet, "/debug/gpumem/state", "").Body.Bytes(), &live))
	if live.Device.UUID != instanceUUID {
		t.Errorf("the live view is of %+v", live)
	}
	overrun(t, rt, "victim")
	succeed(t, "flush", rt.Incidents().Flush(t.Context()))
	if in := onlyIncident(t, rt); in.Device.UUID != instanceUUID || in.Device.PCIBusID != instanceBusID {
		t.Errorf("the incident is of %+v", in.Device)
	}
}

func TestTheHostIsTheMachineWhereNobodyNamesANode(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	host, err := os.Hostname()
	succeed(t, "hostname", err)
	if text := gather(t, open(t, fencepost.Config{})); !strings.Contains(text, `host="`+host+`"`) {
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
	device, err := sim.Open(sim.Config{})
	succeed(t, "open", err)
	t.Cleanup(func() { succeed(t, "close", device.Close()) })
	rt := open(t, fencepost.Config{Driver: nameless{device}, Guard: "hunt"})
	succeed(t, "life", life(t.Context(), rt))
	for _, want := range []string{`pci_bus_id="",uuid=""} 1`, "gpumem_device_held_bytes{", "gpumem_device_total_bytes{"} {
		if text := gather(t, rt); !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	code, body := answer(rt.HealthHandler(), http.MethodGet)
	if code != http.StatusOK || strings.Contains(body, "uuid") {
		t.Errorf("%d %s", code, body)
	}
}
