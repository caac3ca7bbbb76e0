package core

import (
	"runtime"
	"testing"
)

func TestThePackageOfAFunctionIsItsImportPath(t *testing.T) {
	for function, want := range map[string]string{
		module + "/decorators/debugguard.(*Resource).Allocate": module + "/decorators/debugguard",
		module + "/cuda.Alloc[go.shape.float32]":               module + "/cuda",
		module + "/cuda.Alloc[" + module + "/internal/x.T]":    module + "/cuda",
		module + ".Open.func1":                                 module,
		"main.main":                                            "main",
		"gopkg.in/yaml%2ev3.Unmarshal":                         "gopkg.in/yaml%2ev3",
		"no dot":                                               "no dot",
	} {
		if got := packageOf(function); got != want {
			t.Errorf("the package of %s is %s, want %s", function, got, want)
		}
	}
}

func TestAStackBeginsAtTheFirstFrameOutsideTheLibrary(t *testing.T) {
	library := []string{"runtime.Callers", module + "/cuda/sim.(*Device).run", module + "/decorators/debugguard.(*Resource).Allocate", module + "/telemetry/profile.(*Allocations).Sampled",
		module + "/telemetry.(*Resource).Allocate", module + "/core.(*Runtime).Allocate", module + "/core/coretest.(*Faults).Allocate", module + "/internal/path.(*Path).Allocate", module + "/cuda.Alloc[...]", module + ".(*Runtime).Dump"}
	for _, c := range []struct{ function, file string }{
		{"main.load", "main.go"},
		{"example.com/service.(*Server).sort", "server.go"},
		{module + "/internal/workload.(*Workload).Run", "workload.go"},
		{module + "/examples/service/internal/device.(*Device).Sort", "device.go"},
		{module + "/cmd/fencepost.run", "main.go"},
		{module + "/cuda_test.TestX", "x_test.go"},
		{module + "/cuda.TestInside", "x_internal_test.go"},
		{module + "x/core.Run", "of_another_module.go"},
		{"runtimex.Run", "run.go"},
	} {
		var all []runtime.Frame
		for _, f := range library {
			all = append(all, runtime.Frame{Function: f, File: "library.go"})
		}
		all = append(all, runtime.Frame{Function: c.function, File: c.file}, runtime.Frame{Function: module + "/core.(*Runtime).Launch", File: "launch.go"}, runtime.Frame{Function: "runtime.main", File: "proc.go"})
		if got := fromProgram(all); got[0].Function != c.function || len(got) != 3 {
			t.Errorf("below %s the stack begins at %s and has %d frames", c.function, got[0].Function, len(got))
		}
	}
	alone := []runtime.Frame{{Function: library[1]}, {Function: library[2]}}
	if got := fromProgram(alone); len(got) != 2 {
		t.Errorf("of a stack of the library alone %d frames are left", len(got))
	}
}
