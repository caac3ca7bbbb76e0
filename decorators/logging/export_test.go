package logging

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestARingIsWrittenAsTheLinesThatASinkWrites(t *testing.T) {
	ring := NewRing(16 * 1024) // one stripe takes them all
	var sunk, dumped bytes.Buffer
	sink := NewJSONSink(&sunk, Queue{Size: 4096})
	for i := range 1000 {
		r := Record{Seq: uint64(i + 1), Event: oplog.Event{Op: oplog.OpPrepare, Layer: "logging", Time: time.Now(), Launch: fmt.Sprint("launch ", i), LaunchID: uint64(i),
			Uses: 2, Waits: 3, WaitedFor: [4]core.WaitRef{{Launch: 4}, {Block: 5}, {Launch: 6}}}}
		ring.Put(r)
		sink.Put(r)
	}
	must.Do(t, sink.Close(t.Context()))
	must.Do(t, ring.Snapshot().WriteJSON(&dumped))
	if !bytes.Equal(sunk.Bytes(), dumped.Bytes()) {
		t.Errorf("the ring wrote %d bytes, the sink %d, and they differ", dumped.Len(), sunk.Len())
	}
	if line, _, _ := strings.Cut(dumped.String(), "\n"); !strings.Contains(line, `"waited_launches":[4,6],"waited_blocks":[5]`) || strings.Contains(line, "launch_id") {
		t.Errorf("the first line is %s", line)
	}
	if !strings.Contains(dumped.String(), `"launch":"launch 999","launch_id":999,`) {
		t.Error("the last launch is without its number")
	}
	if events := ring.Snapshot().Events(); len(events) != 1000 || events[999].LaunchID != 999 {
		t.Errorf("%d events", len(events))
	}
}

// brokenAfter fails once it has taken so many bytes.
type brokenAfter int

var errFull = errors.New("disk full")

func (b *brokenAfter) Write(p []byte) (int, error) {
	if *b -= brokenAfter(len(p)); *b < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestAFailedWriteEndsADump(t *testing.T) {
	room := brokenAfter(40_000) // more than one chunk
	expect.Error(t, make(Records, 1000).WriteJSON(&room), errFull)
}
