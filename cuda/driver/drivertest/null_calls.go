package drivertest

import "github.com/fencepost-gpu/fencepost/cuda/driver"

// StreamCreate returns a fresh handle.
func (d *Null) StreamCreate() (driver.Stream, error) { return driver.Stream(d.take(1)), nil }

// StreamDestroy does nothing.
func (d *Null) StreamDestroy(driver.Stream) error { return nil }

// StreamQuery reports that all work is done.
func (d *Null) StreamQuery(driver.Stream) (bool, error) { return true, nil }

// StreamSynchronize does nothing.
func (d *Null) StreamSynchronize(driver.Stream) error { return nil }

// StreamWait does nothing.
func (d *Null) StreamWait(driver.Stream, driver.Event) error { return nil }

// StreamWaitPeer does nothing.
func (d *Null) StreamWaitPeer(driver.Stream, driver.Driver, driver.Event) error { return nil }

// StreamBeginCapture does nothing: no stream is ever capturing.
func (d *Null) StreamBeginCapture(driver.Stream) error { return nil }

// StreamEndCapture returns a fresh handle of a graph without work.
func (d *Null) StreamEndCapture(driver.Stream) (driver.Graph, error) {
	return driver.Graph(d.take(1)), nil
}

// StreamCapturing reports that the stream is not capturing.
func (d *Null) StreamCapturing(driver.Stream) (bool, error) { return false, nil }

// GraphLaunch does nothing.
func (d *Null) GraphLaunch(driver.Graph, driver.Stream) error { return nil }

// GraphDestroy does nothing.
func (d *Null) GraphDestroy(driver.Graph) error { return nil }

// EventCreate returns a fresh handle.
func (d *Null) EventCreate() (driver.Event, error) { return driver.Event(d.take(1)), nil }

// EventDestroy does nothing.
func (d *Null) EventDestroy(driver.Event) error { return nil }

// EventRecord does nothing.
func (d *Null) EventRecord(driver.Event, driver.Stream) error { return nil }

// EventQuery reports that the event is done.
func (d *Null) EventQuery(driver.Event) (bool, error) { return true, nil }

// EventSynchronize does nothing.
func (d *Null) EventSynchronize(driver.Event) error { return nil }

// ModuleLoad returns a fresh handle for any image.
func (d *Null) ModuleLoad(driver.Image) (driver.Module, error) { return driver.Module(d.take(1)), nil }

// ModuleUnload does nothing.
func (d *Null) ModuleUnload(driver.Module) error { return nil }

// ModuleFunction returns a fresh handle for any name.
func (d *Null) ModuleFunction(driver.Module, string) (driver.Function, error) {
	return driver.Function(d.take(1)), nil
}

// Launch does nothing.
func (d *Null) Launch(*driver.Launch) error { return nil }

// PoolCreate returns a fresh handle.
func (d *Null) PoolCreate(driver.PoolConfig) (driver.Pool, error) { return driver.Pool(d.take(1)), nil }

// PoolDestroy does nothing.
func (d *Null) PoolDestroy(driver.Pool) error { return nil }

// PoolStats reports an empty pool.
func (d *Null) PoolStats(driver.Pool) (driver.PoolStats, error) { return driver.PoolStats{}, nil }

// PoolTrim does nothing.
func (d *Null) PoolTrim(driver.Pool, uint64) error { return nil }
