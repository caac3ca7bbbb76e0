package proof

import "reflect"

// addCounters adds the numbers of a struct that has nothing else.
func addCounters[T any](to *T, other T) {
	into, from := reflect.ValueOf(to).Elem(), reflect.ValueOf(other)
	for i := range into.NumField() {
		into.Field(i).SetUint(into.Field(i).Uint() + from.Field(i).Uint())
	}
}

// reachCounters reports whether no number of a struct is below that of floor.
func reachCounters[T any](got, floor T) bool {
	is, least := reflect.ValueOf(got), reflect.ValueOf(floor)
	for i := range is.NumField() {
		if is.Field(i).Uint() < least.Field(i).Uint() {
			return false
		}
	}
	return true
}
