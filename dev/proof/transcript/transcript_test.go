package transcript

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/proof/device"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

var update = flag.Bool("update", false, "write the transcripts anew")

// TestTranscriptsAreWhatIsMade demands of every transcript that the oracle writes it
// so, and that the production code makes the waits that it says.
func TestTranscriptsAreWhatIsMade(t *testing.T) {
	all, err := files()
	must.Do(t, err)
	for _, f := range all {
		text, err := f.now()
		if err != nil {
			t.Error(err)
			continue
		}
		if text != f.text && *update {
			expect.Success(t, os.WriteFile(f.path, []byte(text), 0o644))
		} else if text != f.text {
			t.Errorf("%s is now\n%s\nwhere it differs what the fences do has changed: if that is meant, run this test with -update, and say why in the commit", f.path, text)
		}
		if !strings.HasPrefix(text, "# ") {
			t.Errorf("%s does not begin with what it shows", f.path)
		}
	}
}

// TestATranscriptShowsAWaitThatIsNotMade drops each wait of each transcript in turn.
func TestATranscriptShowsAWaitThatIsNotMade(t *testing.T) {
	all, err := files()
	must.Do(t, err)
	dropped := 0
	for _, f := range all {
		script, err := Parse(f.text)
		must.Do(t, err)
		for _, second := range []bool{false, true} {
			for drop := 1; ; drop++ {
				var d *device.Device
				text, err := script.text(func(here, peer *device.Device) {
					if d = here; second {
						d = peer
					}
					d.Drop = drop
				})
				if d.Calls.Waits < drop {
					break
				}
				dropped++
				if err == nil {
					t.Errorf("%s without wait %d is taken for right:\n%s", f.path, drop, text)
				}
			}
		}
	}
	if dropped < 40 {
		t.Errorf("%d waits were dropped", dropped)
	}
}

func TestAStepThatMakesNoSenseIsAnError(t *testing.T) {
	for _, line := range []string{"alloc a", "alloc a on T", "alloc aa on X", "free a b", "launch 1 on Y a", "launch 1 on Y reads 2", "jump", "give in X", "reap X", "finish 3"} {
		script, err := Parse(line + "\n")
		if err == nil {
			_, err = script.Text()
		}
		if err == nil {
			t.Errorf("%q is understood", line)
		}
	}
}
