package drivertest

import "github.com/fencepost-gpu/fencepost/cuda/driver"

// StreamBeginCapture passes the call on unless a fault is due.
func (f *Faults) StreamBeginCapture(s driver.Stream) (err error) {
	if err = f.due(StreamBeginCapture); err == nil {
		err = f.upstream.StreamBeginCapture(s)
	}
	f.note(Call{Method: StreamBeginCapture, Stream: s}, err)
	return err
}

// StreamEndCapture passes the call on unless a fault is due: the capture then
// goes on.
func (f *Faults) StreamEndCapture(s driver.Stream) (g driver.Graph, err error) {
	if err = f.due(StreamEndCapture); err == nil {
		g, err = f.upstream.StreamEndCapture(s)
	}
	f.note(Call{Method: StreamEndCapture, Stream: s}, err)
	return g, err
}

// StreamCapturing passes the call on unless a fault is due.
func (f *Faults) StreamCapturing(s driver.Stream) (capturing bool, err error) {
	if err = f.due(StreamCapturing); err == nil {
		capturing, err = f.upstream.StreamCapturing(s)
	}
	f.note(Call{Method: StreamCapturing, Stream: s}, err)
	return capturing, err
}

// GraphLaunch passes the call on unless a fault is due.
func (f *Faults) GraphLaunch(g driver.Graph, s driver.Stream) (err error) {
	if err = f.due(GraphLaunch); err == nil {
		err = f.upstream.GraphLaunch(g, s)
	}
	f.note(Call{Method: GraphLaunch, Stream: s}, err)
	return err
}

// GraphDestroy passes the call on unless a fault is due.
func (f *Faults) GraphDestroy(g driver.Graph) (err error) {
	if err = f.due(GraphDestroy); err == nil {
		err = f.upstream.GraphDestroy(g)
	}
	f.note(Call{Method: GraphDestroy}, err)
	return err
}
