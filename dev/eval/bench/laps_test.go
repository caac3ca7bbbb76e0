package bench

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// lap is how many calls of one kind a pool made of the driver, and how long they took.
type lap struct{ calls, nanoseconds atomic.Int64 }

// lapped is a driver that times the calls by which a pool comes to memory. If it has prices, it
// sleeps as long before each: the price of a handle for the calls that map.
type lapped struct {
	driver.Driver
	price                                              prices
	mapping                                            sync.Mutex
	starts                                             map[uint64]struct{} // of what is mapped, a handle each
	create, mapped, access, unmap, record, wait, query lap
}

// prices are what calls of the driver take.
type prices struct{ create, mapped, access, unmap, event time.Duration }

// onH200 is what they take there, made longer by a factor: so that a machine with few processors
// sleeps where sixteen threads wait for each other. A handle takes 40 µs to grow by, 54 µs to move
// and 25 µs to take down, whatever its size (BenchmarkGPUPages, BenchmarkGPUTrim).
func onH200(factor time.Duration) prices {
	return prices{
		create: 11000 * factor, mapped: 500 * factor, access: 28500 * factor, unmap: 25000 * factor, event: 300 * factor,
	}
}

func (l *lap) time(price time.Duration, f func() error) error {
	start := time.Now()
	if price >= 200*time.Microsecond {
		time.Sleep(price)
	}
	for time.Since(start) < price { // a sleep takes a millisecond at least on many machines
	}
	err := f()
	l.calls.Add(1)
	l.nanoseconds.Add(int64(time.Since(start)))
	return err
}

// alone is time for a call that keeps the others of its kind out, as the driver's calls for mapping do.
// It takes the price for each of some handles.
func (d *lapped) alone(l *lap, price time.Duration, handles func() int, f func() error) error {
	d.mapping.Lock()
	defer d.mapping.Unlock()
	return l.time(price*time.Duration(handles()), f)
}

func oneHandle() int { return 1 }

// handles are those mapped in a range; mapping is held.
func (d *lapped) handles(ptr, bytes uint64) func() int {
	return func() (n int) {
		for at := range d.starts {
			if ptr <= at && at < ptr+bytes {
				n++
			}
		}
		return n
	}
}

func (d *lapped) MemCreate(bytes uint64) (h driver.MemHandle, err error) {
	err = d.alone(&d.create, d.price.create, oneHandle, func() error {
		h, err = d.Driver.MemCreate(bytes)
		return err
	})
	return h, err
}

func (d *lapped) MemMap(ptr, bytes uint64, h driver.MemHandle) error {
	return d.alone(&d.mapped, d.price.mapped, oneHandle, func() error {
		err := d.Driver.MemMap(ptr, bytes, h)
		if err == nil {
			d.starts[ptr] = struct{}{}
		}
		return err
	})
}

func (d *lapped) MemAccess(ptr, bytes uint64) error {
	return d.alone(&d.access, d.price.access, d.handles(ptr, bytes),
		func() error { return d.Driver.MemAccess(ptr, bytes) })
}

func (d *lapped) MemUnmap(ptr, bytes uint64) error {
	return d.alone(&d.unmap, d.price.unmap, d.handles(ptr, bytes), func() error {
		err := d.Driver.MemUnmap(ptr, bytes)
		if err == nil {
			maps.DeleteFunc(d.starts, func(at uint64, _ struct{}) bool { return ptr <= at && at < ptr+bytes })
		}
		return err
	})
}

func (d *lapped) EventRecord(e driver.Event, s driver.Stream) error {
	return d.record.time(d.price.event, func() error { return d.Driver.EventRecord(e, s) })
}

func (d *lapped) StreamWait(s driver.Stream, e driver.Event) error {
	return d.wait.time(d.price.event, func() error { return d.Driver.StreamWait(s, e) })
}

func (d *lapped) EventQuery(e driver.Event) (done bool, err error) {
	err = d.query.time(d.price.event, func() error {
		done, err = d.Driver.EventQuery(e)
		return err
	})
	return done, err
}

// reapInterval is the default of the pool.
const reapInterval = 10 * time.Millisecond

// allocationLaps is the loop of the quantiles, once, and what its slowest allocations were made of: how often
// pages moved and how long that took, the driver's calls for it, and what the slow ones took in
// all. What that is more than the moves is waiting for others.
func allocationLaps(b *testing.B, drv driver.Driver, price prices, scale int64, each int) {
	d := &lapped{Driver: drv, price: price, starts: map[uint64]struct{}{}}
	var p *cuda.PoolResource
	s := openOn(b, d, func(drv driver.Driver, streams *cuda.StreamPool) (_ backend, err error) {
		p, err = cuda.NewPoolResource(drv, streams, cuda.PoolConfig{ReapInterval: time.Duration(scale) * reapInterval})
		return p, err
	})
	times := allocationTimes(b, s, 16, each, time.Duration(scale-1)*time.Microsecond)
	at := func(q float64) time.Duration { return times[int(q*float64(len(times)-1))] / time.Duration(scale) }
	b.ReportMetric(0, "ns/op")
	for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99, "p99.5": 0.995, "p99.9": 0.999, "most": 1} {
		b.ReportMetric(float64(at(q).Microseconds()), "µs-"+name)
	}
	var slow, all time.Duration
	for _, t := range times {
		if t /= time.Duration(scale); t >= 20*time.Microsecond {
			slow++
			all += t
		}
	}
	b.ReportMetric(float64(slow), "slow")
	b.ReportMetric(float64(all.Microseconds()), "µs-slow")
	st := p.Stats()
	for name, moves := range map[string]core.PoolMoves{"takeovers": st.OwnPool.Takeovers, "steals": st.OwnPool.Steals, "remaps": st.OwnPool.Remaps, "growths": st.OwnPool.Growths} {
		b.ReportMetric(float64(moves.Count), name)
		b.ReportMetric(float64((moves.Time / time.Duration(scale)).Microseconds()), "µs-"+name)
	}
	b.ReportMetric(float64(st.ReservedHigh>>20), "MiB")
	b.ReportMetric(float64(st.PoolUsedHigh>>20), "MiB-used")
	for name, l := range map[string]*lap{"create": &d.create, "map": &d.mapped, "access": &d.access, "unmap": &d.unmap, "record": &d.record, "wait": &d.wait, "query": &d.query} {
		b.ReportMetric(float64(l.calls.Load()), name)
		b.ReportMetric(float64(l.nanoseconds.Load()/scale/1000), "µs-"+name)
	}
}

// BenchmarkAllocationLaps is BenchmarkGPUAllocationLaps where all takes a thousand times as long:
// calls of the driver, which take what they take on an H200, the time between two allocations of a
// thread, and the reaper's ticks. Times are divided by that again. So few processors, even busy
// ones, do for sixteen threads. The pool comes to its size within the first hundred allocations of
// each thread, so 2000 of each show what that takes.
func BenchmarkAllocationLaps(b *testing.B) {
	const factor = 1000
	for round := range 5 {
		b.Run(fmt.Sprintf("round=%d", round), func(b *testing.B) {
			allocationLaps(b, nothing(), onH200(factor), factor, 2000)
		})
	}
}
