package incident_test

import (
	"context"
	"fmt"
	"os"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

func ExampleWriter() {
	dir, err := os.MkdirTemp("", "incidents")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	w, err := incident.NewWriter(incident.Config{Folder: dir, MaxFiles: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Report(core.Finding{Kind: names.FindingLeak, Source: "runtime", Text: "a block was not given back", Victim: core.Block{ID: core.BlockID{Ptr: 0x2000, Generation: 9}, Tag: "cache", Requested: 512}})
	if err := w.Close(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	in, err := incident.ReadFile(w.Files()[0])
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(in.Finding.Kind, in.Finding.Victim.Tag, in.Finding.Victim.Ptr, w.Stats().Written)
	// Output: leak cache 0x2000 1
}

func ExampleFromFinding() {
	f := incident.FromFinding(core.Finding{Kind: names.FindingUseAfterFreeWrite, BadBytes: 4, Expected: 0xff, Seen: 0x2a, Err: &core.UseAfterFreeError{Op: "guard check"}})
	fmt.Println(f.Damage.Expected, f.Damage.Seen, f.Error.Classes)
	// Output: 0xff 0x2a [use_after_free]
}
