package incident

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/fencepost-gpu/fencepost/core"
)

// MaxFile is the largest incident in bytes that [Read] takes. [Writer] writes
// none that is larger.
const MaxFile = 4 << 20

// Encode is the incident as it is written to a file: indented, so that people
// can read and compare it, and ended by a newline.
func (in *Incident) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(in, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing an incident: %w", err)
	}
	return append(text, '\n'), nil
}

// Read reads one incident. What is not one, is of another version of the
// schema, or is larger than [MaxFile], is a [core.InvalidRequestError].
func Read(r io.Reader) (*Incident, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading an incident: %w", err)
	}
	if len(text) > MaxFile {
		return nil, invalid("size", fmt.Sprintf("more than %d bytes: no incident is as large", MaxFile))
	}
	// The version is looked at first: of another one the rest may differ.
	var version struct {
		Schema *int `json:"schema"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, invalid("JSON", err.Error())
	}
	switch {
	case version.Schema == nil:
		return nil, invalid("schema", "missing: this is no incident")
	case *version.Schema != Schema:
		return nil, invalid("schema", fmt.Sprintf("version %d: this program knows version %d; use one of the version that wrote it", *version.Schema, Schema))
	}
	in := &Incident{}
	if err := json.Unmarshal(text, in); err != nil {
		return nil, invalid("JSON", err.Error())
	}
	if in.Finding.Kind == "" {
		return nil, invalid("finding.kind", "missing: this is no incident")
	}
	return in, nil
}

// ReadFile reads the incident in a file.
func ReadFile(path string) (*Incident, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return in, nil
}

func invalid(field, reason string) error {
	return &core.InvalidRequestError{Op: "incident.Read", Field: field, Reason: reason}
}
