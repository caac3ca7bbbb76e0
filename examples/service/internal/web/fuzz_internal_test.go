package web

import (
	"errors"
	"net/http"
	"testing"

	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
)

// Whatever a body holds, it is read as no more rows than it has bytes, or is
// refused with a reason and a status that says whose fault it is.
func FuzzBodies(f *testing.F) {
	f.Add([]byte(`{"type":"uint64","keys":[1,2]}`), true, "", "", "")
	f.Add([]byte(`{"left":[1],"right_keys":[2],"right_values":[3]}`), true, "", "", "")
	f.Add([]byte("12345678"), false, "uint64", "0", "1")
	f.Add([]byte("1234"), false, "uint32", "18446744073709551615", "1")
	f.Add([]byte(`[[[[`), true, "x", "-1", "")
	f.Fuzz(func(t *testing.T, data []byte, isJSON bool, kind, left, right string) {
		form := api.Binary
		if isJSON {
			form = api.JSON
		}
		in, err := parseSort(data, form, kind)
		if err == nil && in.rows() > len(data) {
			t.Errorf("%d rows of %d bytes", in.rows(), len(data))
		}
		wantRefusal(t, err)
		tables, err := splitTables(data, left, right)
		if err == nil && wordsOf(len(tables.Left), len(tables.RightKeys), len(tables.RightValues)) != len(data) {
			t.Errorf("%d, %d and %d rows of %d bytes", len(tables.Left), len(tables.RightKeys), len(tables.RightValues), len(data))
		}
		wantRefusal(t, err)
		wantRefusal(t, parseJSON(data, &api.JoinRequest{}))
	})
}

func wordsOf(columns ...int) (bytes int) {
	for _, n := range columns {
		bytes += 4 * n
	}
	return bytes
}

func wantRefusal(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if no, ok := errors.AsType[*refusal](err); !ok || no.status != http.StatusBadRequest || no.detail == "" {
		t.Errorf("%v", err)
	}
}
