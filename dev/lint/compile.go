package lint

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
)

// Compile compiles blocks that are programs, each as if it were a package of the
// module at root (the repository's), and returns the compiler's complaints, with file and line of the
// document. Nothing is written into the repository: the files exist in an overlay
// only. scratch is a folder for temporary files.
func Compile(ctx context.Context, root, scratch string, programs ...Block) error {
	return onOverlay(ctx, root, scratch, programs, "list", "-export") // compiles, and unlike a build links nothing
}

// Run builds the program, runs it on the simulated device and returns what it
// prints.
func (b Block) Run(ctx context.Context, root, scratch string) (string, error) {
	program, err := b.Program(ctx, root, scratch)
	if err != nil {
		return "", err
	}
	var errs strings.Builder
	program.Stderr = &errs
	out, err := program.Output()
	if err != nil {
		return "", fmt.Errorf("the program at %s:%d: %w\n%s", b.File, b.Line, err, errs.String())
	}
	return string(out), nil
}

// Program builds the program and returns the command that runs it on the simulated device, in
// scratch.
func (b Block) Program(ctx context.Context, root, scratch string) (*exec.Cmd, error) {
	binary := filepath.Join(scratch, "program")
	if err := onOverlay(ctx, root, scratch, []Block{b}, "build", "-o", binary); err != nil {
		return nil, err
	}
	program := exec.CommandContext(ctx, binary) //nolint:gosec // built from a document of ours
	program.Dir = scratch
	program.Env = append(os.Environ(), "FENCEPOST_DEVICE=sim")
	return program, nil
}

// onOverlay runs a command of go over the programs.
func onOverlay(ctx context.Context, root, scratch string, programs []Block, args ...string) error {
	replace := map[string]string{}
	args = append(args, AsThisProgram(), "-overlay", filepath.Join(scratch, "overlay.json"))
	for i, b := range programs {
		name := "block" + strconv.Itoa(i)
		if err := b.lay(filepath.Join(root, "internal", "documents", name), filepath.Join(scratch, name), replace); err != nil {
			return err
		}
		args = append(args, "./internal/documents/"+name)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(scratch, "overlay.json"), overlay, 0o600); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", args...) //nolint:gosec // paths of ours
	command.Dir = root
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("programs in documents: %w\n%s", err, out)
	}
	return nil
}

var embedded = regexp.MustCompile(`(?m)^//go:embed (\S+)$`)

// lay puts the block, what is beside it, and an empty file for each that it embeds, into the folder
// at, and into the overlay as if they were in folder.
func (b Block) lay(folder, at string, replace map[string]string) error {
	if err := os.Mkdir(at, 0o750); err != nil {
		return err
	}
	files := map[string]string{"block.go": fmt.Sprintf("//line %s:%d\n%s", b.File, b.Line, b.Code)}
	for _, m := range embedded.FindAllStringSubmatch(b.Code, -1) {
		files[m[1]] = ""
	}
	maps.Copy(files, b.Beside)
	for name, text := range files {
		replace[filepath.Join(folder, name)] = filepath.Join(at, name)
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// AsThisProgram is the flag with which this program was built: so what a block is
// built from is most likely built already.
func AsThisProgram() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" {
				return "-race=" + s.Value
			}
		}
	}
	return "-race=false"
}
