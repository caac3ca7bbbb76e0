package coretest_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
)

func fakeSubject(fake *coretest.Fake) coretest.Subject {
	return coretest.Subject{
		Resource: fake, Features: core.UseTracking | core.StreamOrdered, Streams: fake.Streams,
		FailNextFree: func() { fake.FailNext("Deallocate", errors.New("the device said no")) },
	}
}

func TestFakeConforms(t *testing.T) {
	coretest.Run(t, func(*testing.T) coretest.Subject { return fakeSubject(coretest.NewFake(0)) })
}

func TestFakeConformsOnAnotherDevice(t *testing.T) {
	coretest.Run(t, func(*testing.T) coretest.Subject { return fakeSubject(coretest.NewFake(3)) })
}

func TestFakeConformsWhenFreesAreSynchronous(t *testing.T) {
	coretest.Run(t, func(*testing.T) coretest.Subject {
		fake := coretest.NewFake(0)
		fake.ReleaseAtFree()
		return fakeSubject(fake)
	})
}

func TestFaultsConformsWithoutFaults(t *testing.T) {
	coretest.Run(t, func(*testing.T) coretest.Subject {
		fake := coretest.NewFake(0)
		s := fakeSubject(fake)
		s.Resource = coretest.NewFaults(coretest.NewFaults(fake))
		return s
	})
}
