package proof

import (
	"errors"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// enginePort is a device that runs nothing: it notes where events are recorded in the
// history of a plan, and which waits a step makes.
type enginePort struct {
	plan *oracle.Plan
	// events are where each was recorded: a node, nowhere, or destroyed.
	events []int32
	alive  int
	// waits are those since the step began.
	waits []engineWait
	// drop is the number of a wait, from 1, that is not noted although the caller
	// is told so; 0 for none.
	drop int
}

// engineWait is one of a stream's, for a node.
type engineWait struct {
	stream uint8
	from   int32
}

const (
	nowhere   = -1
	destroyed = -2
)

var _ fence.Port = (*enginePort)(nil)

var errGone = errors.New("an event is used that was destroyed")

// forget forgets where the events were recorded.
func (p *enginePort) forget() {
	for i := range p.events {
		if p.events[i] != destroyed {
			p.events[i] = nowhere
		}
	}
}

func (p *enginePort) EventCreate() (driver.Event, error) {
	p.events = append(p.events, nowhere)
	p.alive++
	return driver.Event(len(p.events)), nil
}

func (p *enginePort) EventDestroy(e driver.Event) error {
	if p.events[e-1] == destroyed {
		return errGone
	}
	p.events[e-1] = destroyed
	p.alive--
	return nil
}

func (p *enginePort) EventRecord(e driver.Event, s driver.Stream) error {
	if p.events[e-1] == destroyed {
		return errGone
	}
	p.events[e-1] = p.plan.History.Last(uint8(s))
	return nil
}

// EventQuery says yes: a step that asks has let the device do all.
func (p *enginePort) EventQuery(e driver.Event) (bool, error) { return true, p.EventSynchronize(e) }

func (p *enginePort) EventSynchronize(e driver.Event) error {
	if p.events[e-1] == destroyed {
		return errGone
	}
	return nil
}

func (p *enginePort) StreamWait(s driver.Stream, e driver.Event) error {
	if p.events[e-1] == destroyed {
		return errGone
	}
	if p.drop > 0 {
		if p.drop--; p.drop == 0 {
			return nil
		}
	}
	p.waits = append(p.waits, engineWait{uint8(s), p.events[e-1]})
	return nil
}

func (p *enginePort) StreamWaitPeer(driver.Stream, driver.Driver, driver.Event) error {
	return errors.ErrUnsupported
}
func (p *enginePort) StreamSynchronize(driver.Stream) error       { return nil }
func (p *enginePort) StreamCapturing(driver.Stream) (bool, error) { return false, nil }
