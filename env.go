package fencepost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/environ"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/internal/operators"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// applyEnvironment overrides the fields that have a variable. A variable that
// is set to nothing counts as not set.
func (c *Config) applyEnvironment() error {
	for _, v := range environ.Variables() {
		value := os.Getenv(v.Name)
		if value == "" {
			continue
		}
		if err := set(c.field(v.Field), value); err != nil {
			return invalid(v.Field, fmt.Sprintf("%s: %v", legible.Value(value), err))
		}
	}
	return nil
}

// field is the address of the field of that name, of one within another "Outer.Inner".
func (c *Config) field(name string) any {
	at := reflect.ValueOf(c).Elem()
	for part := range strings.SplitSeq(name, ".") {
		at = at.FieldByName(part)
	}
	return at.Addr().Interface()
}

// invalid refuses a field. It names the variable instead where that is set,
// because then it is the variable that the reader must change.
func invalid(field, reason string) error {
	for _, v := range environ.Variables() {
		if v.Field == field && os.Getenv(v.Name) != "" {
			field = v.Name
		}
	}
	return &core.InvalidRequestError{Op: "fencepost.Open", Field: field, Reason: legible.Text(reason)}
}

// set reads a variable's value into the field at that address.
func set(field any, value string) (err error) {
	switch to := field.(type) {
	case *string:
		*to = value
	case *DeviceKind:
		*to = DeviceKind(value)
	case *Backend:
		*to = Backend(value)
	case *GuardMode:
		*to = GuardMode(value)
	case *FaultMode:
		*to = FaultMode(value)
	case *GuardPolicy:
		*to = GuardPolicy(value)
	case *int:
		if *to, err = strconv.Atoi(value); err != nil {
			err = errors.New("write a whole number")
		}
	case *bool:
		if *to, err = strconv.ParseBool(value); err != nil {
			err = errors.New("write 1 or 0")
		}
	case *uint64:
		*to, err = ParseBytes(value)
	case *time.Duration:
		if *to, err = time.ParseDuration(value); err != nil {
			err = errors.New("write a time with its unit, such as 500ms, 30s or 5m")
		}
	case *[]core.Tag:
		*to, err = operators.ParseTags(value)
	case *[]string:
		*to = strings.Split(strings.ReplaceAll(value, " ", ""), ",")
	case *telemetry.Level:
		if *to, err = telemetry.ParseLevel(value); err != nil {
			err = errors.New("say off, launches or operations")
		}
	}
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

// warnOfUnknown logs the unknown variables as one record.
func (c *Config) warnOfUnknown(env []string) {
	unknown := environ.Unknown(env)
	if len(unknown) == 0 {
		return
	}
	logger := usercode.Logger(cmp.Or(c.Findings.Logger, slog.Default()))
	const named = 8
	var text []string
	for _, u := range unknown[:min(len(unknown), named)] {
		text = append(text, u.String())
	}
	if more := len(unknown) - named; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	logger.LogAttrs(context.Background(), slog.LevelWarn, "fencepost: "+strings.Join(text, "; "), slog.Int("variables", len(unknown)))
}
