package driver

import "time"

// HostTimeOf returns the host's time of the device beneath every [Wrapper] of d, since that was opened, where time is
// virtual; nil of any other. Such a device has a method HostTime, which says whether it is.
func HostTimeOf(d Driver) func() time.Duration {
	device, ok := Unwrap(d).(interface {
		HostTime() (t time.Duration, virtual bool)
	})
	if !ok {
		return nil
	}
	if _, virtual := device.HostTime(); !virtual {
		return nil
	}
	return func() time.Duration {
		t, _ := device.HostTime()
		return t
	}
}

// LaunchLags are how far from the events around it a device begins and ends a kernel.
type LaunchLags struct {
	// Begin is how long after an event in front of it on its stream it begins, and Call how long after the host sets about to
	// enqueue it, where the stream waits for that.
	Begin, Call time.Duration
	// End is how long after its end the device comes to an event behind it.
	End time.Duration
}

// LaunchLagsOf is what the method LaunchLags of the device beneath every [Wrapper] of d says, or zero.
func LaunchLagsOf(d Driver) LaunchLags {
	if device, ok := Unwrap(d).(interface{ LaunchLags() LaunchLags }); ok {
		return device.LaunchLags()
	}
	return LaunchLags{}
}
