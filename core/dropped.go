package core

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/fencepost-gpu/fencepost/core/names"
)

// dropped closes a recording whose recorder the collector found without an end, as if
// its launch had been enqueued: over-ordering is safe, a missing fence is not.
func (r *recording) dropped() {
	if r.phase == ended || len(r.uses) == 0 {
		return
	}
	text := fmt.Sprintf("launch recorder %q with %d uses on stream %v (%s) was dropped without Commit or Abort", r.name,
		len(r.uses), r.stream, r.mode)
	slog.Error("fencepost: "+text, "born", cmp.Or(r.born.Caller(), "unknown"))
	if r.runtime == nil {
		return
	}
	r.runtime.dropped.Add(1)
	if r.phase == preflighted {
		_ = r.runtime.FinishUse(context.Background(), r.ticket)
	}
	r.runtime.report(Finding{Kind: names.FindingDroppedRecorder, Time: time.Now(), AllocStack: r.born,
		Text: text + "; it was closed as if launched"})
}
