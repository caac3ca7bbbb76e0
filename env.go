package fencepost

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
)

// variables are the environment's overrides, with the field of Config that
// each sets.
var variables = [...]struct {
	name, field string
	set         func(*Config, string) error
}{
	{"FENCEPOST_DEVICE", "Device", func(c *Config, s string) error { return text(&c.Device, s) }},
	{"FENCEPOST_ORDINAL", "Ordinal", func(c *Config, s string) error { return number(&c.Ordinal, s) }},
	{"FENCEPOST_SIM_BYTES", "Sim.Bytes", func(c *Config, s string) error { return size(&c.Sim.Bytes, s) }},
	{"FENCEPOST_RESOURCE", "Resource", func(c *Config, s string) error { return text(&c.Resource, s) }},
	{"FENCEPOST_STREAMS", "Streams", func(c *Config, s string) error { return number(&c.Streams, s) }},
	{"FENCEPOST_BUDGET", "Budget", func(c *Config, s string) error { return size(&c.Budget, s) }},
	{"FENCEPOST_GUARD", "Guard", func(c *Config, s string) error { return text(&c.Guard, s) }},
	{"FENCEPOST_HISTORY", "History", func(c *Config, s string) error { return number(&c.History, s) }},
}

// applyEnvironment overrides the fields that have a variable. A variable that
// is set to nothing counts as not set.
func (c *Config) applyEnvironment() error {
	for _, v := range variables {
		value := os.Getenv(v.name)
		if value == "" {
			continue
		}
		if err := v.set(c, value); err != nil {
			return invalid(v.field, fmt.Sprintf("%q: %v", value, err))
		}
	}
	return nil
}

// invalid refuses a field. It names the variable instead where that is set,
// because then it is the variable that the reader must change.
func invalid(field, reason string) error {
	for _, v := range variables {
		if v.field == field && os.Getenv(v.name) != "" {
			field = v.name
		}
	}
	return &core.InvalidRequestError{Op: "fencepost.Open", Field: field, Reason: reason}
}

func text(to *string, s string) error {
	*to = s
	return nil
}

func number(to *int, s string) (err error) {
	if *to, err = strconv.Atoi(s); err != nil {
		return errors.New("write a whole number")
	}
	return nil
}

func size(to *uint64, s string) (err error) {
	*to, err = ParseBytes(s)
	return err
}

// ParseBytes reads a size such as "1073741824", "1024MiB" or "1 GiB".
func ParseBytes(s string) (uint64, error) {
	unit := uint64(1)
	digits := strings.TrimSpace(s)
	for suffix, bytes := range map[string]uint64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40} {
		if rest, ok := strings.CutSuffix(digits, suffix); ok {
			digits, unit = strings.TrimSpace(rest), bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("not a size: write whole bytes, or a whole number with KiB, MiB, GiB or TiB")
	}
	high, total := bits.Mul64(n, unit)
	if high != 0 {
		return 0, fmt.Errorf("not a size: more than 64 bits can count")
	}
	return total, nil
}
