package bench

import (
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
// sleeps as long before each: the price of a page for the calls that map.
type lapped struct {
	driver.Driver
	page                                               uint64
	price                                              prices
	mapping                                            sync.Mutex
	create, mapped, access, unmap, record, wait, query lap
}

// prices are what calls of the driver take.
type prices struct{ create, mapped, access, unmap, event time.Duration }

// onH200 is what they take there for a page of 2 MiB, made longer by a factor: so that a machine with
// few processors sleeps where sixteen threads wait for each other.
func onH200(factor time.Duration) prices {
	return prices{
		create: 7100 * factor, mapped: 500 * factor, access: 18600 * factor, unmap: 13000 * factor, event: 300 * factor,
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
func (l *lap) alone(mapping *sync.Mutex, price time.Duration, f func() error) error {
	mapping.Lock()
	defer mapping.Unlock()
	return l.time(price, f)
}

// forPages is the price of so many bytes of pages.
func (d *lapped) forPages(bytes uint64, price time.Duration) time.Duration {
	return time.Duration(bytes / d.page * uint64(price.Nanoseconds()))
}

func (d *lapped) MemCreate(bytes uint64) (h driver.MemHandle, err error) {
	err = d.create.alone(&d.mapping, d.forPages(bytes, d.price.create), func() error {
		h, err = d.Driver.MemCreate(bytes)
		return err
	})
	return h, err
}

func (d *lapped) MemMap(ptr, bytes uint64, h driver.MemHandle) error {
	return d.mapped.alone(&d.mapping, d.forPages(bytes, d.price.mapped), func() error { return d.Driver.MemMap(ptr, bytes, h) })
}

func (d *lapped) MemAccess(ptr, bytes uint64) error {
	return d.access.alone(&d.mapping, d.forPages(bytes, d.price.access), func() error { return d.Driver.MemAccess(ptr, bytes) })
}

func (d *lapped) MemUnmap(ptr, bytes uint64) error {
	return d.unmap.alone(&d.mapping, d.forPages(bytes, d.price.unmap), func() error { return d.Driver.MemUnmap(ptr, bytes) })
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

// allocationLaps is the loop of the quantiles, once, and what its slowest allocations were made of: how often
// pages moved and how long that took, the driver's calls for it, and what the slow ones took in
// all. What that is more than the moves is waiting for others.
func allocationLaps(b *testing.B, drv driver.Driver, price prices, scale int64, each int) {
	d := &lapped{Driver: drv, price: price, page: made(b, drv.Properties).MapGranularity}
	var p *cuda.PoolResource
	s := openOn(b, d, func(drv driver.Driver, streams *cuda.StreamPool) (_ backend, err error) {
		p, err = cuda.NewPoolResource(drv, streams, cuda.PoolConfig{})
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

// BenchmarkAllocationLaps is BenchmarkGPUAllocationLaps where all takes a thousand times as long: calls of the
// driver, which take what they take on an H200, and the time between two allocations of a thread. Times
// are divided by that again. So few processors, even busy ones, do for sixteen threads.
func BenchmarkAllocationLaps(b *testing.B) {
	const factor = 1000
	allocationLaps(b, nothing(), onH200(factor), factor, 20000)
}
