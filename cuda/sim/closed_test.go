package sim

import (
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// values are what calls are given and have returned, by type.
type values struct {
	mu   sync.Mutex
	seen map[reflect.Type][]reflect.Value
}

const valuesKept = 32

func (v *values) add(random *rand.Rand, value reflect.Value) {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := v.seen[value.Type()]
	if len(list) < valuesKept {
		v.seen[value.Type()] = append(list, value)
		return
	}
	list[random.IntN(len(list))] = value
}

// pick is a value of a type: one that was seen, or zero.
func (v *values) pick(random *rand.Rand, t reflect.Type) reflect.Value {
	v.mu.Lock()
	defer v.mu.Unlock()
	if list := v.seen[t]; len(list) > 0 && random.IntN(8) != 0 {
		return list[random.IntN(len(list))]
	}
	return reflect.Zero(t)
}

// argument makes what a method is given.
func (v *values) argument(random *rand.Rand, peer *Device, t reflect.Type) reflect.Value {
	pick := func(field any) { // of a pointer
		at := reflect.ValueOf(field).Elem()
		at.Set(v.pick(random, at.Type()))
	}
	var ptr uint64
	pick(&ptr)
	switch t {
	case reflect.TypeFor[[]byte]():
		return reflect.ValueOf(make([]byte, 64))
	case reflect.TypeFor[time.Duration]():
		return reflect.ValueOf(time.Duration(random.IntN(2)))
	case reflect.TypeFor[string]():
		return reflect.ValueOf("write")
	case reflect.TypeFor[driver.Driver]():
		return reflect.ValueOf(peer)
	case reflect.TypeFor[driver.Image]():
		return reflect.ValueOf(driver.Image{Name: testImage})
	case reflect.TypeFor[driver.Declared]():
		return reflect.ValueOf(driver.Declared{Ptr: ptr, Bytes: 64, Access: 1})
	case reflect.TypeFor[[]driver.Event]():
		var e driver.Event
		pick(&e)
		return reflect.ValueOf([]driver.Event{e})
	case reflect.TypeFor[*driver.Launch]():
		l := &driver.Launch{Args: []driver.Arg{driver.Ptr(ptr), driver.U64(64)}}
		pick(&l.Function)
		pick(&l.Stream)
		return reflect.ValueOf(l)
	}
	return v.pick(random, t)
}

// call calls a method and returns its error. It keeps the other results.
func (v *values) call(random *rand.Rand, d, peer *Device, method int) (fails bool, err error) {
	m := reflect.ValueOf(d).Method(method)
	in := make([]reflect.Value, m.Type().NumIn())
	for i := range in {
		in[i] = v.argument(random, peer, m.Type().In(i))
	}
	call := m.Call
	if m.Type().IsVariadic() {
		call = m.CallSlice
	}
	results := call(in)
	for _, r := range results {
		if r.Type() == reflect.TypeFor[error]() {
			fails = true
			err, _ = r.Interface().(error)
		}
	}
	for _, r := range results {
		switch kind := r.Kind(); {
		case kind == reflect.Func && !r.IsNil():
			r.Call(nil)
		case kind == reflect.Uint64 && err == nil, r.Type() == reflect.TypeFor[driver.HostMemory]() && err == nil:
			v.add(random, r)
		}
	}
	return fails, err
}

// methodsBut are the numbers of all exported methods but some.
func methodsBut(names ...string) (numbers []int) {
	t := reflect.TypeFor[*Device]()
	for i := range t.NumMethod() {
		left := false
		for _, name := range names {
			left = left || t.Method(i).Name == name
		}
		if !left {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// furnished is a device with a few of everything, which the test does not close.
func furnished(t *testing.T, s Schedule, random *rand.Rand) (*Device, *values) {
	d, err := Open(Config{Bytes: 64 << 20, Schedule: s})
	must(t, err)
	p := newProgram(t, d)
	v := &values{seen: make(map[reflect.Type][]reflect.Value)}
	stream := p.stream()
	mapped, size := p.mapped(2)
	d.BlockBegins(mapped, 4096, stream)
	f, err := d.ModuleFunction(p.module, "write")
	must(t, err)
	host, err := d.HostAlloc(4096)
	must(t, err)
	for _, value := range []any{stream, p.stream(), p.event(), p.module, f, host, p.alloc(4096, stream),
		p.alloc(100, stream), mapped, mapped + Granule, size, host.DevicePtr, uint64(64)} {
		v.add(random, reflect.ValueOf(value))
	}
	return d, v
}

// Any method may come while the device is closed, and after it: memory that is gone ends the
// process.
func TestEveryMethodMayComeWhileTheDeviceIsClosedAndAfter(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for _, s := range schedules[:2] {
		t.Run(s.String(), func(t *testing.T) {
			for range rounds {
				closeWhileCalled(t, s, rand.Uint64())
			}
		})
	}
}

const (
	callersEach = 3
	callsAfter  = 100 // of each caller, once the device is closed
)

func closeWhileCalled(t *testing.T, s Schedule, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	var devices [2]*Device
	var known [2]*values
	for i := range devices {
		devices[i], known[i] = furnished(t, s, random)
	}
	while, after := methodsBut("Close", "WatchFaults", "LoseContext", "StickyAt"), methodsBut("WatchFaults")
	var calls atomic.Int64
	var wg sync.WaitGroup
	for i, d := range devices {
		closed, closeAt := make(chan struct{}), int64(random.IntN(1000))
		for range callersEach {
			own := rand.New(rand.NewPCG(seed, random.Uint64()))
			wg.Go(func() {
				for left := callsAfter; left > 0; calls.Add(1) {
					select {
					case <-closed:
						left--
						method := after[own.IntN(len(after))]
						name := reflect.TypeFor[*Device]().Method(method).Name
						if fails, err := known[i].call(own, d, devices[1-i], method); fails && err == nil && name != "Close" {
							t.Errorf("seed %d: %s of a closed device succeeded", seed, name)
						}
					default:
						_, _ = known[i].call(own, d, devices[1-i], while[own.IntN(len(while))])
					}
				}
			})
		}
		wg.Go(func() {
			defer close(closed)
			for calls.Load() < closeAt {
				time.Sleep(time.Microsecond)
			}
			if err := d.Close(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
	wg.Wait()
}
