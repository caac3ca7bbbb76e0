package incident

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Schema is the version of the written form.
const Schema = 1

// Incident is a finding and what surrounded it. The package comment describes
// the JSON form.
type Incident struct {
	Schema int `json:"schema"`
	// Number counts the incidents of the process, from 1.
	Number  uint64  `json:"number"`
	Finding Finding `json:"finding"`
	Repeats Repeats `json:"repeats,omitzero"`
	Process Process `json:"process"`
	Surroundings
}

// Surroundings is what a runtime knows beside a finding.
type Surroundings struct {
	Device Device `json:"device,omitzero"`
	// Stack is the runtime's layers as they print themselves.
	Stack   string  `json:"stack,omitempty"`
	Guard   Guard   `json:"guard,omitzero"`
	Memory  Memory  `json:"memory,omitzero"`
	History []Event `json:"history,omitempty"`
	// Incomplete says what is missing and why; empty if all is there.
	Incomplete string `json:"incomplete,omitempty"`
}

// Finding is the written form of a core.Finding; see [FromFinding].
type Finding struct {
	Kind   string    `json:"kind"`
	Source string    `json:"source"`
	Text   string    `json:"text"`
	Time   time.Time `json:"time,omitzero"`
	// Unproven says that there need be no bug.
	Unproven bool `json:"unproven,omitempty"`
	// Victim is nil if no block is known.
	Victim *Block `json:"victim,omitempty"`
	// Damage is nil if no bytes were compared.
	Damage *Damage `json:"damage,omitempty"`
	// Allocated and Freed are when the victim's owner allocated it and gave it back, on the
	// clock of uses, suspects and history, as far as known. In the history, a block that a
	// guard held back is given back later.
	Allocated  time.Time `json:"allocated,omitzero"`
	Freed      time.Time `json:"freed,omitzero"`
	AllocStack []string  `json:"alloc_stack,omitempty"`
	FreeStack  []string  `json:"free_stack,omitempty"`
	CallStack  []string  `json:"call_stack,omitempty"`
	Uses       []Use     `json:"uses,omitempty"`
	OlderUses  uint64    `json:"older_uses,omitempty"`
	Suspects   []Use     `json:"suspects,omitempty"`
	// MoreSuspects is set if there may be suspects that are not named.
	MoreSuspects bool `json:"more_suspects,omitempty"`
	// Unranked is set if no suspect declared the victim: they are in order of time.
	Unranked bool `json:"unranked,omitempty"`
	// TraceID and SpanID name the exported span that tells of it, in hexadecimal digits
	// as W3C trace context writes them; Trace says how much of that trace was exported:
	// "full", or "event" if it is only that span.
	TraceID string   `json:"trace_id,omitempty"`
	SpanID  string   `json:"span_id,omitempty"`
	Trace   string   `json:"trace,omitempty"`
	Error   *Failure `json:"error,omitempty"`
}

// Block is a block of memory. Sizes are bytes.
type Block struct {
	Tag        string  `json:"tag"`
	Generation uint64  `json:"generation"`
	Ptr        Address `json:"ptr"`
	Requested  uint64  `json:"requested"`
	Bytes      uint64  `json:"bytes"`
	Align      uint64  `json:"align,omitempty"`
	Stream     uint64  `json:"stream"`
	Device     int     `json:"device"`
	State      string  `json:"state,omitempty"`
}

// Damage is what was found changed.
type Damage struct {
	// Offset is that of the first bad byte relative to the victim's address.
	Offset int64 `json:"offset"`
	// Bytes is how many differ.
	Bytes    uint64 `json:"bytes"`
	Expected Byte   `json:"expected"`
	Seen     Byte   `json:"seen"`
}

// Use is a launch, or one declared use of a block by it.
type Use struct {
	LaunchID uint64    `json:"launch_id"`
	Launch   string    `json:"launch,omitempty"`
	Stream   uint64    `json:"stream"`
	Access   string    `json:"access,omitempty"`
	TraceID  string    `json:"trace_id,omitempty"`
	SpanID   string    `json:"span_id,omitempty"`
	Time     time.Time `json:"time,omitzero"`
	Tags     []string  `json:"tags,omitempty"`
}

// Failure is an error.
type Failure struct {
	Text string `json:"text"`
	// Classes are the errors of package core that it matches, as in
	// errors.Is: "use_after_free", "stream_misuse" and so on.
	Classes []string `json:"classes,omitempty"`
}

// Repeats says what was left out of a storm of findings of one kind, tag and
// place.
type Repeats struct {
	// Since is when the first that was left out was seen, Omitted how many
	// there were before this one.
	Since   time.Time `json:"since,omitzero"`
	Omitted uint64    `json:"omitted"`
}

// Process is who saw it.
type Process struct {
	PID     int    `json:"pid"`
	Program string `json:"program"`
	Go      string `json:"go"`
	// Fencepost is the version of this module in the program, "(devel)" if
	// it was built from a working tree.
	Fencepost string `json:"fencepost"`
}

// Device is where it was seen.
type Device struct {
	// Kind is "cuda" or "sim".
	Kind    string `json:"kind"`
	Ordinal int    `json:"ordinal"`
	Name    string `json:"name"`
	// UUID is the same in every process that uses the device; PCIBusID is where
	// it is. Empty if the driver cannot say.
	UUID     string `json:"uuid,omitempty"`
	PCIBusID string `json:"pci_bus_id,omitempty"`
}

// Guard is the debug guard's settings and numbers.
type Guard struct {
	Mode     string   `json:"mode"`
	Policy   string   `json:"policy,omitempty"`
	HuntTags []string `json:"hunt_tags,omitempty"`
	// Numbers are the guard's counters, by name.
	Numbers map[string]uint64 `json:"numbers,omitempty"`
}

// Memory is the device's memory in bytes, and its counters. The pool holds Reserved; Cached of
// that is in no block, and Fragmented of that in no wholly free page of the runtime's own pool, which may hold
// PoolLimit.
type Memory struct {
	Live          uint64 `json:"live"`
	Pending       uint64 `json:"pending"`
	Quarantined   uint64 `json:"quarantined"`
	Peak          uint64 `json:"peak"`
	Limit         uint64 `json:"limit"`
	Charged       uint64 `json:"charged"`
	Reserved      uint64 `json:"reserved"`
	Cached        uint64 `json:"cached"`
	Fragmented    uint64 `json:"fragmented,omitempty"`
	PoolLimit     uint64 `json:"pool_limit,omitempty"`
	Allocations   uint64 `json:"allocations"`
	Deallocations uint64 `json:"deallocations"`
	Launches      uint64 `json:"launches"`
	Failures      uint64 `json:"failures"`
	Refusals      uint64 `json:"refusals"`
	OpenIntents   uint64 `json:"open_intents"`
	Poisoned      uint64 `json:"poisoned"`
}

// Event is a log record: what was done shortly before.
type Event struct {
	Time       time.Time `json:"time,omitzero"`
	DurationNS int64     `json:"duration_ns"`
	Op         string    `json:"op"`
	Layer      string    `json:"layer,omitempty"`
	Device     int       `json:"device"`
	Stream     uint64    `json:"stream"`
	Ptr        Address   `json:"ptr,omitempty"`
	Generation uint64    `json:"generation,omitempty"`
	Tag        string    `json:"tag,omitempty"`
	Requested  uint64    `json:"requested,omitempty"`
	Bytes      uint64    `json:"bytes,omitempty"`
	Launch     string    `json:"launch,omitempty"`
	Access     string    `json:"access,omitempty"`
	Uses       int       `json:"uses,omitempty"`
	Waits      int       `json:"waits,omitempty"`
	Elided     int       `json:"elided,omitempty"`
	Relieved   bool      `json:"relieved,omitempty"`
	Error      *Failure  `json:"error,omitempty"`
}

// Address is a device address, in JSON a string such as "0x7f0012345600".
type Address uint64

// String is the address as Go and C write it.
func (a Address) String() string { return "0x" + strconv.FormatUint(uint64(a), 16) }

// MarshalText writes what String returns.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads hexadecimal digits with 0x in front.
func (a *Address) UnmarshalText(text []byte) error { return parseHex(a, text, 64) }

// Byte is the value of one byte, in JSON a string such as "0x5f".
type Byte uint8

// String is the value in two digits.
func (b Byte) String() string { return fmt.Sprintf("0x%02x", uint8(b)) }

// MarshalText writes what String returns.
func (b Byte) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads hexadecimal digits with 0x in front.
func (b *Byte) UnmarshalText(text []byte) error { return parseHex(b, text, 8) }

func parseHex[T Address | Byte](to *T, text []byte, bits int) error {
	digits, ok := strings.CutPrefix(string(text), "0x")
	if !ok {
		return fmt.Errorf("%q is no hexadecimal number: write 0x in front", text)
	}
	n, err := strconv.ParseUint(digits, 16, bits)
	if err != nil {
		return fmt.Errorf("%q is no hexadecimal number of %d bits", text, bits)
	}
	*to = T(n)
	return nil
}
