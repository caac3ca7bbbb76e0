package incident

import (
	"fmt"
	"strconv"
	"strings"
)

// Address is a device address, in JSON a string such as "0x7f0012345600".
type Address uint64

// String is the address as Go and C write it.
func (a Address) String() string { return "0x" + strconv.FormatUint(uint64(a), 16) }

// MarshalText writes what String returns.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads hexadecimal digits with 0x in front.
func (a *Address) UnmarshalText(text []byte) error {
	n, err := parseHex(string(text), 64)
	*a = Address(n)
	return err
}

// Byte is the value of one byte, in JSON a string such as "0x5f".
type Byte uint8

// String is the value in two digits.
func (b Byte) String() string { return fmt.Sprintf("0x%02x", uint8(b)) }

// MarshalText writes what String returns.
func (b Byte) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads hexadecimal digits with 0x in front.
func (b *Byte) UnmarshalText(text []byte) error {
	n, err := parseHex(string(text), 8)
	*b = Byte(n)
	return err
}

func parseHex(text string, bits int) (uint64, error) {
	digits, ok := strings.CutPrefix(text, "0x")
	if !ok {
		return 0, fmt.Errorf("%q is no hexadecimal number: write 0x in front", text)
	}
	n, err := strconv.ParseUint(digits, 16, bits)
	if err != nil {
		return 0, fmt.Errorf("%q is no hexadecimal number of %d bits", text, bits)
	}
	return n, nil
}
