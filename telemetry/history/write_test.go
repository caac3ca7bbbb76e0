package history_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/telemetry/history"
)

var errFull = errors.New("disk full")

// room takes so many bytes and then no more.
type room int

func (r *room) Write(p []byte) (int, error) {
	if *r -= room(len(p)); *r < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestEveryFormatReportsAWriterThatFails(t *testing.T) {
	rt, source := open(t, hunting())
	free(t, rt, allocate(t, rt, 100, 0, "rows"))
	for _, format := range history.Formats() {
		for _, bytes := range []room{0, 100} {
			if err := source.Write(&bytes, format); !errors.Is(err, errFull) {
				t.Errorf("%s: got %v", format, err)
			}
		}
	}
}
