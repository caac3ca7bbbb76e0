package core_test

import (
	"errors"
	"math"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/names"
)

func TestRequestNormalize(t *testing.T) {
	full := core.Request{Bytes: 100, Requested: 60, Align: 64, Stream: 3, Tag: "sort", Claim: 7, Span: core.SpanRef{SpanID: [8]byte{1}}}
	for _, c := range []struct {
		name    string
		request core.Request
		want    core.Request
		field   string
	}{
		{"defaults", core.Request{Bytes: 1}, core.Request{Bytes: 1, Requested: 1, Align: 256, Tag: names.Untagged}, ""},
		{"everything given", full, full, ""},
		{"requested equals bytes", core.Request{Bytes: 9, Requested: 9, Tag: "t"}, core.Request{Bytes: 9, Requested: 9, Align: 256, Tag: "t"}, ""},
		{"smallest alignment", core.Request{Bytes: 9, Align: 1}, core.Request{Bytes: 9, Requested: 9, Align: 1, Tag: names.Untagged}, ""},
		{"largest alignment", core.Request{Bytes: 9, Align: 256}, core.Request{Bytes: 9, Requested: 9, Align: 256, Tag: names.Untagged}, ""},
		{"largest size", core.Request{Bytes: math.MaxUint64}, core.Request{Bytes: math.MaxUint64, Requested: math.MaxUint64, Align: 256, Tag: names.Untagged}, ""},
		{"zero bytes", core.Request{}, core.Request{}, "Bytes"},
		{"zero bytes with requested", core.Request{Requested: 5}, core.Request{}, "Bytes"},
		{"more requested than bytes", core.Request{Bytes: 9, Requested: 10}, core.Request{}, "Requested"},
		{"alignment of 3", core.Request{Bytes: 9, Align: 3}, core.Request{}, "Align"},
		{"alignment of 255", core.Request{Bytes: 9, Align: 255}, core.Request{}, "Align"},
		{"alignment of 512", core.Request{Bytes: 9, Align: 512}, core.Request{}, "Align"},
		{"alignment of 768", core.Request{Bytes: 9, Align: 768}, core.Request{}, "Align"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.request
			err := got.Normalize("Allocate")
			var invalid *core.InvalidRequestError
			switch {
			case c.field == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.field == "":
				mustBe(t, "normalized request", got, c.want)
			case !errors.As(err, &invalid):
				t.Errorf("got %v, want an invalid request", err)
			default:
				mustBe(t, "field and operation", invalid.Field+" "+invalid.Op, c.field+" Allocate")
			}
		})
	}
}
