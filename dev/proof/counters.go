package proof

import (
	"fmt"
	"reflect"
	"strings"
)

// addCounters adds the numbers of a struct that has nothing else, or such structs.
func addCounters[T any](to *T, other T) {
	addValues(reflect.ValueOf(to).Elem(), reflect.ValueOf(other))
}

func addValues(into, from reflect.Value) {
	for i := range into.NumField() {
		if into.Field(i).Kind() == reflect.Struct {
			addValues(into.Field(i), from.Field(i))
		} else {
			into.Field(i).SetUint(into.Field(i).Uint() + from.Field(i).Uint())
		}
	}
}

// Moves is what the runtime's own pool did: in how many runs what, and how many operations were
// served at once or prepared.
type Moves struct {
	// Reuses gave a block memory of an earlier one, Splits a part of one's, Merges that of
	// several, and Joins that of several streams.
	Reuses, Splits, Merges, Joins uint64
	// These are of [core.OwnPoolStats], and Refusals for want of memory.
	Takeovers, Steals, Remaps, Growths, Refusals uint64
	// QuickAllocations and QuickFrees are the operations that were served at once, SlowAllocations
	// and SlowFrees the tries that were declined, which were prepared.
	QuickAllocations, QuickFrees, SlowAllocations, SlowFrees uint64
	// Again are those of QuickAllocations that were ordinary: they got a block that the stream had
	// kept.
	Again uint64
}

// Add adds other runs.
func (m *Moves) Add(o Moves) { addCounters(m, o) }

// Reach reports whether there are as many of each kind as in floor.
func (m Moves) Reach(floor Moves) bool {
	got, least := reflect.ValueOf(m), reflect.ValueOf(floor)
	for i := range got.NumField() {
		if got.Field(i).Uint() < least.Field(i).Uint() {
			return false
		}
	}
	return true
}

// Ordinary is the same without the counts of what is served at once.
func (m Moves) Ordinary() Moves {
	m.QuickAllocations, m.QuickFrees, m.SlowAllocations, m.SlowFrees, m.Again = 0, 0, 0, 0, 0
	return m
}

// String is such as "reuses=93 splits=20 merges=3": every count by its name.
func (m Moves) String() string {
	var parts []string
	for f, v := range reflect.ValueOf(m).Fields() {
		parts = append(parts, fmt.Sprintf("%s=%d", strings.ToLower(f.Name), v.Uint()))
	}
	return strings.Join(parts, " ")
}
