package sim

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// identityOf is the UUID and the bus id of a device.
func identityOf(t *testing.T, c Config) (uuid, bus string) {
	t.Helper()
	c.Bytes = Granule
	d, err := Open(c)
	must(t, err)
	defer func() { must(t, d.Close()) }()
	p, err := d.Properties()
	must(t, err)
	return p.UUID, p.PCIBusID
}

func TestADeviceOfAnOrdinalStaysTheSameInAProcess(t *testing.T) {
	seen := map[string]int{}
	for ordinal := range core.MaxOrdinals {
		uuid, bus := identityOf(t, Config{Ordinal: ordinal})
		if again, busAgain := identityOf(t, Config{Ordinal: ordinal, Schedule: Seeded(1)}); again != uuid || busAgain != bus {
			t.Errorf("ordinal %d was %s at %s, and then %s at %s", ordinal, uuid, bus, again, busAgain)
		}
		for _, id := range []string{uuid, bus} {
			if other, taken := seen[id]; taken {
				t.Errorf("ordinals %d and %d are both %s", other, ordinal, id)
			}
			seen[id] = ordinal
		}
		if !strings.HasPrefix(uuid, "GPU-00000000-0000-0000-") {
			t.Errorf("%s could be taken for a GPU's", uuid)
		}
	}
}

func TestADeviceIsWhatItIsConfiguredToBe(t *testing.T) {
	for _, c := range []struct{ uuid, bus string }{
		{"GPU-00000000-0000-0000-0003-0123456789ab", "89ab:03:00.0"},
		{"MIG-b5c627b3-7ab5-8097-6f1f-5b9119c15a8e", "5a8e:1f:00.0"},
	} {
		for ordinal := range 2 {
			if uuid, bus := identityOf(t, Config{Ordinal: ordinal, UUID: c.uuid}); uuid != c.uuid || bus != c.bus {
				t.Errorf("configured as %s, ordinal %d is %s at %s, want %s", c.uuid, ordinal, uuid, bus, c.bus)
			}
		}
	}
	for _, uuid := range []string{
		"x", "GPU-", "00000000-0000-0000-0003-0123456789ab", "GPU-00000000-0000-0000-0003-0123456789AB", "GPU-00000000-0000-0000-0003-0123456789ab ",
		"TPU-00000000-0000-0000-0003-0123456789ab", "MIG-GPU-00000000-0000-0000-0003-0123456789ab/1/0",
	} {
		var e *core.InvalidRequestError
		if _, err := Open(Config{UUID: uuid}); !errors.As(err, &e) || e.Field != "UUID" {
			t.Errorf("the UUID %q: %v", uuid, err)
		}
	}
}

// The process that the test starts runs the test too, and prints its device.
func TestAnotherProcessHasAnotherDevice(t *testing.T) {
	const variable = "TEST_OTHER_PROCESS"
	own, _ := identityOf(t, Config{})
	if os.Getenv(variable) != "" {
		t.Logf("other=%s;", own)
		return
	}
	self, err := os.Executable()
	must(t, err)
	child := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), variable+"=1")
	said, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	_, rest, _ := strings.Cut(string(said), "other=")
	if other, _, found := strings.Cut(rest, ";"); !found || !uuidForm.MatchString(other) || other == own {
		t.Errorf("this process has %s, the other said %q in\n%s", own, other, said)
	}
}
