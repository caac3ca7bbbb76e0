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

// LaunchLagOf is how long after an event in front of it on its stream the device beneath every [Wrapper] of d begins a
// kernel: what its method LaunchLag says, or zero.
func LaunchLagOf(d Driver) time.Duration {
	if device, ok := Unwrap(d).(interface{ LaunchLag() time.Duration }); ok {
		return device.LaunchLag()
	}
	return 0
}
