package logging_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestLoggingConforms(t *testing.T) {
	for _, level := range []logging.Level{logging.Operations, logging.Uses} {
		t.Run(level.String(), func(t *testing.T) {
			coretest.Run(t, func(t *testing.T) coretest.Subject {
				fake := coretest.NewFake(0)
				log := must.Get(logging.New(fake, logging.Config{Level: level, Sinks: []logging.Sink{logging.NewRing(256)}}))(t)
				return coretest.Subject{
					Resource: log, Features: core.UseTracking | core.StreamOrdered, Streams: fake.Streams,
					FailNextFree: func() { fake.FailNext("Deallocate", errors.New("the device said no")) },
				}
			})
		})
	}
}
