package drivertest

import "github.com/fencepost-gpu/fencepost/cuda/driver"

// Ordinal is the wrapped driver's. It is neither counted nor logged.
func (f *Faults) Ordinal() int { return f.upstream.Ordinal() }

// StreamWait passes the call on unless a fault is due or the wait is to be
// dropped.
func (f *Faults) StreamWait(s driver.Stream, e driver.Event) (err error) {
	dropped := false
	if err = f.due(StreamWait); err == nil {
		if dropped = f.waits.dropped(); !dropped {
			err = f.upstream.StreamWait(s, e)
		}
	}
	f.note(Call{Method: StreamWait, Stream: s, Event: e, Dropped: dropped}, err)
	return err
}

// Properties passes the call on unless a fault is due.
func (f *Faults) Properties() (p driver.Properties, err error) {
	if err = f.due(Properties); err == nil {
		p, err = f.upstream.Properties()
	}
	f.note(Call{Method: Properties}, err)
	return p, err
}

// Synchronize passes the call on unless a fault is due.
func (f *Faults) Synchronize() (err error) {
	if err = f.due(Synchronize); err == nil {
		err = f.upstream.Synchronize()
	}
	f.note(Call{Method: Synchronize}, err)
	return err
}

// Close passes the call on unless a fault is due.
func (f *Faults) Close() (err error) {
	if err = f.due(Close); err == nil {
		err = f.upstream.Close()
	}
	f.note(Call{Method: Close}, err)
	return err
}

// StreamCreate passes the call on unless a fault is due.
func (f *Faults) StreamCreate() (s driver.Stream, err error) {
	if err = f.due(StreamCreate); err == nil {
		s, err = f.upstream.StreamCreate()
	}
	f.note(Call{Method: StreamCreate, Stream: s}, err)
	return s, err
}

// StreamDestroy passes the call on unless a fault is due.
func (f *Faults) StreamDestroy(s driver.Stream) (err error) {
	if err = f.due(StreamDestroy); err == nil {
		err = f.upstream.StreamDestroy(s)
	}
	f.note(Call{Method: StreamDestroy, Stream: s}, err)
	return err
}

// StreamQuery passes the call on unless a fault is due.
func (f *Faults) StreamQuery(s driver.Stream) (done bool, err error) {
	if err = f.due(StreamQuery); err == nil {
		done, err = f.upstream.StreamQuery(s)
	}
	f.note(Call{Method: StreamQuery, Stream: s}, err)
	return done, err
}

// StreamSynchronize passes the call on unless a fault is due.
func (f *Faults) StreamSynchronize(s driver.Stream) (err error) {
	if err = f.due(StreamSynchronize); err == nil {
		err = f.upstream.StreamSynchronize(s)
	}
	f.note(Call{Method: StreamSynchronize, Stream: s}, err)
	return err
}

// EventCreate passes the call on unless a fault is due.
func (f *Faults) EventCreate() (e driver.Event, err error) {
	if err = f.due(EventCreate); err == nil {
		e, err = f.upstream.EventCreate()
	}
	f.note(Call{Method: EventCreate, Event: e}, err)
	return e, err
}

// EventDestroy passes the call on unless a fault is due.
func (f *Faults) EventDestroy(e driver.Event) (err error) {
	if err = f.due(EventDestroy); err == nil {
		err = f.upstream.EventDestroy(e)
	}
	f.note(Call{Method: EventDestroy, Event: e}, err)
	return err
}

// EventRecord passes the call on unless a fault is due.
func (f *Faults) EventRecord(e driver.Event, s driver.Stream) (err error) {
	if err = f.due(EventRecord); err == nil {
		err = f.upstream.EventRecord(e, s)
	}
	f.note(Call{Method: EventRecord, Event: e, Stream: s}, err)
	return err
}

// EventQuery passes the call on unless a fault is due.
func (f *Faults) EventQuery(e driver.Event) (done bool, err error) {
	if err = f.due(EventQuery); err == nil {
		done, err = f.upstream.EventQuery(e)
	}
	f.note(Call{Method: EventQuery, Event: e}, err)
	return done, err
}

// EventSynchronize passes the call on unless a fault is due.
func (f *Faults) EventSynchronize(e driver.Event) (err error) {
	if err = f.due(EventSynchronize); err == nil {
		err = f.upstream.EventSynchronize(e)
	}
	f.note(Call{Method: EventSynchronize, Event: e}, err)
	return err
}

// ModuleLoad passes the call on unless a fault is due.
func (f *Faults) ModuleLoad(i driver.Image) (m driver.Module, err error) {
	if err = f.due(ModuleLoad); err == nil {
		m, err = f.upstream.ModuleLoad(i)
	}
	f.note(Call{Method: ModuleLoad}, err)
	return m, err
}

// ModuleUnload passes the call on unless a fault is due.
func (f *Faults) ModuleUnload(m driver.Module) (err error) {
	if err = f.due(ModuleUnload); err == nil {
		err = f.upstream.ModuleUnload(m)
	}
	f.note(Call{Method: ModuleUnload}, err)
	return err
}

// ModuleFunction passes the call on unless a fault is due.
func (f *Faults) ModuleFunction(m driver.Module, name string) (fn driver.Function, err error) {
	if err = f.due(ModuleFunction); err == nil {
		fn, err = f.upstream.ModuleFunction(m, name)
	}
	f.note(Call{Method: ModuleFunction}, err)
	return fn, err
}

// Launch passes the call on unless a fault is due.
func (f *Faults) Launch(l *driver.Launch) (err error) {
	if err = f.due(Launch); err == nil {
		err = f.upstream.Launch(l)
	}
	f.note(Call{Method: Launch, Stream: l.Stream}, err)
	return err
}
