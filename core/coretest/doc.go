// Package coretest helps to test resources and what is built on them.
//
//   - [Run] is the conformance suite that every [core.Resource] and every
//     stack of them must pass. It adapts to what the resource can do, says
//     which cases it skipped and why, and refuses a case that checked nothing.
//   - [Fake] is a scripted in-memory backend without a device.
//   - [Faults] wraps any resource and makes chosen calls of it fail.
//
// A backend's test of conformance is one function:
//
//	func TestConformance(t *testing.T) {
//		coretest.Run(t, func(t *testing.T) coretest.Subject {
//			fake := coretest.NewFake(0)
//			return coretest.Subject{Resource: fake, Features: fake.Features(), Streams: fake.Streams}
//		})
//	}
package coretest
