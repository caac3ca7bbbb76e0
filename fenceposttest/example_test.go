package fenceposttest_test

import (
	"fmt"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/fenceposttest"
)

// The test of a service that copies a column to the device and back.
func ExampleOpen() {
	test := func(t testing.TB) { // func TestCopy(t *testing.T)
		rt := fenceposttest.Open(t, fencepost.Config{})
		err := rt.Do(t.Context(), "copy", func(j *fencepost.Job) error {
			column, err := fencepost.Upload(j, []uint32{1, 2, 3})
			if err != nil {
				return err
			}
			values, err := fencepost.Download(j, column)
			fmt.Println(values)
			return err
		})
		if err != nil {
			t.Errorf("copy: %v", err)
		}
	}
	ran := run(test) // go test
	fmt.Println("failed:", len(ran.errors) > 0)
	// Output:
	// [1 2 3]
	// failed: false
}
