package libcuda_test

import (
	"encoding/binary"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/dynlib"
)

// gpu opens the first real device, or skips the test with what is wrong.
func gpu(t *testing.T) *libcuda.Device {
	t.Helper()
	libcuda.ForgetLoaded()
	l, err := libcuda.Load()
	if err != nil {
		t.Skip(err)
	}
	d, err := l.Open(0)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

// storePTX stores two arguments of different sizes where the first points.
const storePTX = `.version 7.4
.target sm_52
.address_size 64
.visible .entry store(.param .u64 to, .param .u32 a, .param .u64 b)
{
	.reg .b64 %rd<4>;
	.reg .b32 %r<2>;
	ld.param.u64 %rd1, [to];
	ld.param.u32 %r1, [a];
	ld.param.u64 %rd2, [b];
	cvta.to.global.u64 %rd3, %rd1;
	st.global.u32 [%rd3], %r1;
	st.global.u64 [%rd3+8], %rd2;
	ret;
}
`

func TestAGPUIsDescribed(t *testing.T) {
	d := gpu(t)
	v := d.Description()
	t.Logf("%+v", v)
	if v.Name == "" || v.TotalBytes == 0 || v.ComputeMajor == 0 || v.Multiprocessors == 0 || len(v.UUID) != 40 || v.PCIBusID == "" {
		t.Errorf("described as %+v", v)
	}
}

// TestAGPUIsIdentifiedAsNvidiaSMIDoes compares with nvidia-smi where there is
// one: containers without the capability "utility" lack it.
func TestAGPUIsIdentifiedAsNvidiaSMIDoes(t *testing.T) {
	p, err := gpu(t).Properties()
	must(t, err)
	t.Logf("%s at %s", p.UUID, p.PCIBusID)
	if !regexp.MustCompile(`^(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(p.UUID) {
		t.Errorf("the UUID is %q", p.UUID)
	}
	if !regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`).MatchString(p.PCIBusID) {
		t.Errorf("the bus id is %q", p.PCIBusID)
	}
	if _, err := exec.LookPath("nvidia-smi"); err != nil {
		t.Logf("there is no nvidia-smi to compare with: %v", err)
		return
	}
	listed, err := exec.CommandContext(t.Context(), "nvidia-smi", "-L").Output()
	must(t, err)
	if !strings.Contains(string(listed), p.UUID) {
		t.Errorf("nvidia-smi -L does not list %s:\n%s", p.UUID, listed)
	}
	if strings.HasPrefix(p.UUID, "MIG-") {
		return // whose bus id is the GPU's, which has another UUID
	}
	asked, err := exec.CommandContext(t.Context(), "nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader", "--id="+p.UUID).Output()
	must(t, err)
	t.Logf("nvidia-smi says %s", asked)
	if got := strings.ToLower(strings.TrimSpace(string(asked))); !strings.HasSuffix(got, p.PCIBusID) {
		t.Errorf("the bus id is %s, nvidia-smi says %s", p.PCIBusID, got)
	}
}

func TestAGPURunsAKernelWithItsArguments(t *testing.T) {
	d := gpu(t)
	m, err := d.ModuleLoad(driver.Image{PTX: []byte(storePTX)})
	must(t, err)
	store, err := d.ModuleFunction(m, "store")
	must(t, err)
	s, err := d.StreamCreate()
	must(t, err)
	ptr, err := d.MemAllocAsync(16, 0, s)
	must(t, err)
	must(t, d.Launch(&driver.Launch{Function: store, Stream: s,
		Args: []driver.Arg{driver.Ptr(ptr), driver.U32(0xfedcba98), driver.U64(0x0123456789abcdef)}}))
	got := make([]byte, 16)
	must(t, d.CopyToHostAsync(got, ptr, s))
	must(t, d.MemFreeAsync(ptr, s))
	must(t, d.StreamSynchronize(s))
	equal(t, "a", binary.LittleEndian.Uint32(got), 0xfedcba98)
	equal(t, "b", binary.LittleEndian.Uint64(got[8:]), 0x0123456789abcdef)
	equal(t, "the launch path needed the context", d.Binds(), false)
	must(t, d.StreamDestroy(s))
	must(t, d.ModuleUnload(m))
}

func TestAGPUsCompilerSaysWhatIsWrong(t *testing.T) {
	_, err := gpu(t).ModuleLoad(driver.Image{PTX: []byte(strings.Replace(storePTX, "ret;", "retreat;", 1))})
	if e := driverError(t, err, "cuModuleLoadDataEx", driver.InvalidPTX); !strings.Contains(e.Detail, "retreat") {
		t.Errorf("the detail is %q", e.Detail)
	}
}

// TestAGPUTakesCallsBesideAnotherContext has a context that is not the primary
// one current, as a library that makes its own leaves it.
func TestAGPUTakesCallsBesideAnotherContext(t *testing.T) {
	d := gpu(t)
	l, err := libcuda.Load()
	must(t, err)
	handle, err := dynlib.Open(l.Path())
	must(t, err)
	b := &bench{fake: &fake{TB: t, handle: handle}, d: d}
	b.stream, err = d.StreamCreate()
	must(t, err)
	b.event, err = d.EventCreate()
	must(t, err)
	b.ptr, err = d.MemAlloc(benchBytes)
	must(t, err)
	b.graph, err = captured(d, b.stream, func() error { return d.MemsetAsync(b.ptr, 1, 16, b.stream) })
	must(t, err)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	context := b.result("cuCtxCreate_v2", 0, 0) // and makes it current
	for _, c := range everyCall(b) {
		if !strings.HasPrefix(c.name, "Module") && c.name != "Launch" {
			if err := c.run(); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			equal(t, c.name+": current context", b.result("cuCtxGetCurrent"), context)
		}
	}
	equal(t, "cuCtxDestroy", b.control("cuCtxDestroy_v2", uintptr(context)), 0)
	t.Logf("the device came to push its context for every call: %v", d.Binds())
}

// TestNoCallDisturbsACaptureOfSomebodyElsesOnAGPU is what says which calls the
// driver calls potentially unsafe: each is made beside a global capture.
func TestNoCallDisturbsACaptureOfSomebodyElsesOnAGPU(t *testing.T) {
	d := gpu(t)
	l, err := libcuda.Load()
	must(t, err)
	handle, err := dynlib.Open(l.Path())
	must(t, err)
	f := &fake{TB: t, handle: handle}
	b := &bench{fake: f, d: d}
	b.stream, err = d.StreamCreate()
	must(t, err)
	b.event, err = d.EventCreate()
	must(t, err)
	b.ptr, err = d.MemAlloc(benchBytes)
	must(t, err)
	b.module, err = d.ModuleLoad(driver.Image{PTX: []byte(storePTX)})
	must(t, err)
	b.function, err = d.ModuleFunction(b.module, "store")
	must(t, err)
	b.graph, err = captured(d, b.stream, func() error { return d.MemsetAsync(b.ptr, 1, 16, b.stream) })
	must(t, err)
	load := func() (driver.Module, error) { return d.ModuleLoad(driver.Image{PTX: []byte(storePTX)}) }
	calls := []apiCall{
		{name: "ModuleLoad, ModuleUnload", run: made(load, d.ModuleUnload)},
		{name: "ModuleFunction", run: func() error { return second(d.ModuleFunction(b.module, "store")) }},
		{name: "Launch", run: func() error {
			return d.Launch(&driver.Launch{Function: b.function, Stream: b.stream, Args: []driver.Arg{driver.Ptr(b.ptr), driver.U32(1), driver.U64(2)}})
		}},
		{name: "an allocation for which the pool grows", run: made(func() (uint64, error) { return d.MemAllocAsync(1<<30, 0, b.stream) },
			func(p uint64) error { return d.MemFreeAsync(p, b.stream) })},
	}
	for _, c := range everyCall(b) {
		if !strings.HasPrefix(c.name, "Module") && c.name != "Launch" {
			calls = append(calls, c)
		}
	}
	newStranger(f, d).undisturbed(calls)
	must(t, d.Synchronize())
	must(t, d.GraphDestroy(b.graph))
	must(t, d.ModuleUnload(b.module))
	must(t, d.MemFree(b.ptr))
	must(t, d.EventDestroy(b.event))
	must(t, d.StreamDestroy(b.stream))
}
