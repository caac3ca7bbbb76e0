package devicecode_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
	"github.com/fencepost-gpu/fencepost/internal/workload"
)

// kernels maps the names of kernels to the sizes of their parameters in bits.
type kernels map[string]string

// images are all device code of the repository: the path of each source
// without its ending, what Go embeds, and what Go looks up in it. A kernel
// belongs here when Go launches it with these arguments.
var images = map[string]struct {
	image   driver.Image
	kernels kernels
}{
	"cuda/guardkernels/guard": {guardkernels.Image(), kernels{
		driver.GuardFillKernel:     "64 32",
		driver.GuardFillFewKernel:  strings.TrimSpace(strings.Repeat(" 64", 3*driver.GuardFew)),
		driver.GuardVerifyKernel:   "64 64 32",
		driver.GuardChecksumKernel: "64 64 32",
		driver.GuardDelayKernel:    "64",
	}},
	"examples/hello/add": {exampleImage("hello/add.ptx"), kernels{"add_each": "64 32 32"}},
	"examples/service/kernels/kernels": {workload.Image(), kernels{
		"fencepost_radix_histogram": "64 64 32 32",
		"fencepost_radix_scan":      "64 32",
		"fencepost_radix_scatter":   "64 64 64 64 64 32 32",
		"fencepost_join_clear":      "64 32",
		"fencepost_join_build":      "64 64 64 32 32",
		"fencepost_join_probe":      "64 64 64 32 32",
		"fencepost_filter":          "64 64 64 64 32 32",
	}},
	"internal/testkit/testkernels/testkernels": {testkernels.Image(), kernels{
		testkernels.Delay:       "64",
		testkernels.Hold:        "64",
		testkernels.Write:       "64 64 64",
		testkernels.Check:       "64 64 64 64",
		testkernels.CopyAdd:     "64 64 64 64",
		testkernels.ReadAll:     "64 64 64",
		testkernels.Illegal:     "64",
		testkernels.OutOfBounds: "64 64 64",
	}},
}

// byHand are texts without a source.
var byHand = map[string]bool{"examples/hello/add": true}

// exampleImage is what an example embeds in a package that nobody can import.
func exampleImage(path string) driver.Image {
	ptx, _ := os.ReadFile("../../examples/" + path) // without it a test fails
	return driver.Image{PTX: ptx}
}

func TestDeviceCodeIsGeneratedFromItsSource(t *testing.T) {
	for path, c := range images {
		if byHand[path] {
			continue
		}
		source := must.Get(os.ReadFile("../../" + path + ".cu"))(t)
		for _, line := range []string{
			fmt.Sprintf("// sha256 of the source: %x", sha256.Sum256(source)),
			"// SPDX-License-Identifier: Apache-2.0",
		} {
			if !hasLine(c.image.PTX, line) {
				t.Errorf("%s.ptx has no line %q: run scripts/ptx, which needs nvcc, and check the text in", path, line)
			}
		}
	}
}

// The oldest architecture that the text is for, and a version of the language
// that drivers take from CUDA 11.4 on.
func TestDeviceCodeIsForOldDriversToo(t *testing.T) {
	for path, c := range images {
		for _, line := range []string{".version 7.4", ".target sm_75", ".address_size 64"} {
			if !hasLine(c.image.PTX, line) {
				t.Errorf("%s.ptx has no line %q: run scripts/ptx", path, line)
			}
		}
	}
}

func TestDeviceCodeHasTheKernelsThatGoLaunches(t *testing.T) {
	for path, c := range images {
		if got := entries(c.image.PTX); !maps.Equal(got, c.kernels) {
			t.Errorf("%s.ptx has the kernels %v, and Go launches %v", path, got, c.kernels)
		}
	}
}

// Every text is in the table above, and so is every kernel that has a name.
func TestAllDeviceCodeIsChecked(t *testing.T) {
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		for _, ending := range []string{".cu", ".ptx"} {
			name, found := strings.CutSuffix(filepath.ToSlash(path), ending)
			if name = strings.TrimPrefix(name, "../../"); found && images[name].kernels == nil && !strings.Contains(name, "/testdata/") {
				t.Errorf("%s is not in the table of this test", path)
			}
		}
		return err
	})
	must.Do(t, err)
}

func hasLine(text []byte, line string) bool {
	return strings.Contains("\n"+string(text), "\n"+line+"\n")
}

var (
	entry     = regexp.MustCompile(`(?s)\.entry\s+(\w+)\s*\((.*?)\)`)
	parameter = regexp.MustCompile(`\.param\s+(?:\.align\s+\d+\s+)?\.[busf](\d+)`)
)

// entries are the kernels of a text. A structure as a parameter counts as the
// 8 bits of its bytes, and so as a mistake.
func entries(text []byte) kernels {
	found := kernels{}
	for _, e := range entry.FindAllSubmatch(text, -1) {
		var sizes []string
		for _, p := range parameter.FindAllSubmatch(e[2], -1) {
			sizes = append(sizes, string(p[1]))
		}
		found[string(e[1])] = strings.Join(sizes, " ")
	}
	return found
}
