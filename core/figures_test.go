package core_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// Whatever the figures of a refusal are, it prints as many different sizes as they have different
// values: none that differ look the same.
func TestNoTwoFiguresOfARefusalLookTheSame(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 9))
	printed := regexp.MustCompile(`[0-9.]+ [KMGT]?i?B\b`)
	for range 2000 {
		near := random.Uint64()>>(4+random.IntN(40)) + 100
		figure := func() uint64 { return near + random.Uint64N(1<<random.IntN(12)) }
		holders := []core.Holder{{Tag: "a", State: core.Live, Bytes: figure(), Blocks: 2}, {Tag: "b", State: core.Claimed, Bytes: figure(), Blocks: 1}}
		wait := core.Wait{Pending: figure(), Ahead: 2, AheadBytes: figure(), First: "c"}
		for _, err := range []error{
			&core.OutOfBudgetError{Requested: figure(), Remaining: figure(), Limit: figure(), Live: figure(), Pending: figure(),
				Quarantined: figure(), Claimed: figure(), Lent: figure(), Holders: holders, MoreHolders: 3, MoreBytes: figure(), Wait: wait},
			&core.WaitError{Requested: figure(), Limit: figure(), Remaining: figure(), Kept: figure(), Holders: holders,
				MoreHolders: 1, MoreBytes: figure(), Wait: wait, Err: fmt.Errorf("ended")},
			&core.OutOfMemoryError{Requested: figure(), Held: figure(), May: figure() + near, Used: figure(), Behind: figure(),
				Fragmented: figure(), Largest: figure(), Cause: core.ShortageFragmented, Holders: holders, MoreHolders: 2, MoreBytes: figure()},
		} {
			values := map[uint64]bool{}
			collect(reflect.ValueOf(err).Elem(), values)
			if e, ok := err.(*core.OutOfMemoryError); ok {
				values[e.May-e.Used] = true // what is free
			}
			texts := map[string]bool{}
			for _, text := range printed.FindAllString(err.Error(), -1) {
				texts[text] = true
			}
			if len(texts) != len(values) {
				t.Fatalf("%d sizes for %d values %v: %v", len(texts), len(values), values, err)
			}
		}
	}
}

// collect collects the bytes of an error: all numbers of 64 bits that are no identity and no count.
func collect(v reflect.Value, to map[uint64]bool) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			switch v.Type().Field(i).Name {
			case "Claim", "Reserved", "MoreHolders", "Blocks", "Cached", "Err":
			default:
				collect(v.Field(i), to)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			collect(v.Index(i), to)
		}
	case reflect.Uint64:
		to[v.Uint()] = true
	}
}
