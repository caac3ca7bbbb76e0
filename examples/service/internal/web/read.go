package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/device"
)

// sortInput is a request to sort: one of the columns is meant.
type sortInput struct {
	kind   api.Type
	keys32 []uint32
	keys64 []uint64
}

func (in *sortInput) rows() int { return len(in.keys32) + len(in.keys64) }

// body reads the request's body, in its bounds, and says which of the two
// forms it has.
func (s *Server) body(w http.ResponseWriter, r *http.Request) (data []byte, form string, err error) {
	form, _, err = mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || form != api.JSON && form != api.Binary {
		return nil, "", &refusal{status: http.StatusUnsupportedMediaType, code: api.CodeUnsupportedType,
			detail: fmt.Sprintf("Content-Type %q: send %s or %s", r.Header.Get("Content-Type"), api.JSON, api.Binary)}
	}
	lift, err := boundUpload(w, r)
	if err != nil {
		return nil, "", err
	}
	defer lift()
	data, err = io.ReadAll(http.MaxBytesReader(w, r.Body, s.limits.MaxBody))
	if err != nil {
		return nil, "", uploadFailed(err)
	}
	return data, form, nil
}

func (s *Server) readSort(data []byte, form string, r *http.Request) (*sortInput, error) {
	in, err := parseSort(data, form, r.URL.Query().Get(api.QueryType))
	if err != nil {
		return nil, err
	}
	return in, s.checkRows("keys", in.rows())
}

func parseSort(data []byte, form, kind string) (*sortInput, error) {
	if form == api.Binary {
		in := &sortInput{kind: api.Type(kind)}
		err := in.fill(func(to any) error { return fillBinary(to, data) })
		return in, err
	}
	var raw struct {
		Type api.Type        `json:"type"`
		Keys json.RawMessage `json:"keys"`
	}
	if err := parseJSON(data, &raw); err != nil {
		return nil, err
	}
	if raw.Keys == nil {
		return nil, malformed("there are no keys")
	}
	in := &sortInput{kind: raw.Type}
	err := in.fill(func(to any) error { return parseJSON(raw.Keys, to) })
	return in, err
}

// fill reads the column that the request's type asks for.
func (in *sortInput) fill(read func(any) error) error {
	switch in.kind {
	case "", api.Uint32:
		in.kind = api.Uint32
		return read(&in.keys32)
	case api.Uint64:
		return read(&in.keys64)
	}
	return malformed("type %q: say %s or %s", in.kind, api.Uint32, api.Uint64)
}

func fillBinary(to any, data []byte) (err error) {
	switch column := to.(type) {
	case *[]uint32:
		*column, err = api.Values[uint32](data)
	case *[]uint64:
		*column, err = api.Values[uint64](data)
	}
	if err != nil {
		return malformed("the body: %v", err)
	}
	return nil
}

func (s *Server) readJoin(data []byte, form string, r *http.Request) (device.Tables, error) {
	var t device.Tables
	var err error
	if form == api.Binary {
		query := r.URL.Query()
		t, err = splitTables(data, query.Get(api.QueryLeft), query.Get(api.QueryRight))
	} else {
		var request api.JoinRequest
		err = parseJSON(data, &request)
		t = device.Tables{Left: request.Left, RightKeys: request.RightKeys, RightValues: request.RightValues}
	}
	if err != nil {
		return t, err
	}
	if err := errors.Join(s.checkRows("left", len(t.Left)), s.checkRows("right_keys", len(t.RightKeys))); err != nil {
		return t, err
	}
	return t, t.Check()
}

// splitTables takes a binary body apart. The numbers of rows are the client's
// and anything at all: they are compared with what there is before they are
// used.
func splitTables(data []byte, left, right string) (device.Tables, error) {
	values, err := api.Values[uint32](data)
	if err != nil {
		return device.Tables{}, malformed("the body: %v", err)
	}
	l, leftErr := strconv.ParseUint(left, 10, 32)
	r, rightErr := strconv.ParseUint(right, 10, 32)
	if err := errors.Join(leftErr, rightErr); err != nil {
		return device.Tables{}, malformed("say ?%s=ROWS&%s=ROWS: %v", api.QueryLeft, api.QueryRight, err)
	}
	if l+2*r != uint64(len(values)) {
		return device.Tables{}, malformed("%d values: %d left keys and %d right keys with as many values make %d", len(values), l, r, l+2*r)
	}
	return device.Tables{Left: values[:l], RightKeys: values[l : l+r], RightValues: values[l+r:]}, nil
}

func parseJSON(data []byte, to any) error {
	if err := strictJSON(data, to); err != nil {
		return malformed("the JSON: %v", err)
	}
	return nil
}

func (s *Server) checkRows(column string, n int) error {
	if n <= s.limits.MaxRows {
		return nil
	}
	return &refusal{status: http.StatusRequestEntityTooLarge, code: api.CodeTooLarge,
		detail: fmt.Sprintf("%s: %d rows, at most %d", column, n, s.limits.MaxRows)}
}
