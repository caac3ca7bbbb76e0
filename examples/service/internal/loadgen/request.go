package loadgen

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"

	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
)

// request is one request, and what its answer must be.
type request struct {
	path, form string
	body       []byte
	rows       int
	// right reports whether the body of an answer is right.
	right func(body []byte) bool
}

// newRequest makes request number n of a run.
func newRequest(seed, n uint64, maxRows int) *request {
	rng := rand.New(rand.NewPCG(seed, n))
	rows := min(maxRows, int(math.Exp(rng.Float64()*math.Log(float64(maxRows)+1))))
	form := api.JSON
	if rng.IntN(2) == 0 {
		form = api.Binary
	}
	switch rng.IntN(3) {
	case 0:
		return newSort[uint32](rng, api.Uint32, form, rows)
	case 1:
		return newSort[uint64](rng, api.Uint64, form, rows)
	default:
		return newJoin(rng, form, rows)
	}
}

func newSort[K uint32 | uint64](rng *rand.Rand, kind api.Type, form string, rows int) *request {
	keys := make([]K, rows)
	for i := range keys {
		keys[i] = K(rng.Uint64())
	}
	r := &request{path: api.RouteSort + "?" + api.QueryType + "=" + string(kind), form: form, rows: rows}
	if form == api.Binary {
		r.body = api.Append(nil, keys)
	} else {
		r.body = encode(api.SortRequest[K]{Type: kind, Keys: keys})
	}
	r.right = func(body []byte) bool {
		got := api.SortResponse[K]{Type: kind}
		var err error
		if form == api.Binary {
			got.Keys, err = api.Values[K](body)
		} else {
			err = json.Unmarshal(body, &got)
		}
		slices.Sort(keys)
		return err == nil && got.Type == kind && slices.Equal(got.Keys, keys)
	}
	return r
}

// newJoin makes rows of which half are left ones; about half of those find a
// partner.
func newJoin(rng *rand.Rand, form string, rows int) *request {
	var t api.JoinRequest
	partners := map[uint32]uint32{}
	for range (rows + 1) / 2 {
		k, v := rng.Uint32N(api.NoPartner), rng.Uint32N(api.NoPartner)
		if _, twice := partners[k]; !twice {
			partners[k] = v
			t.RightKeys, t.RightValues = append(t.RightKeys, k), append(t.RightValues, v)
		}
	}
	t.Left = make([]uint32, rows/2)
	for i := range t.Left {
		t.Left[i] = rng.Uint32()
		if rng.IntN(2) == 0 {
			t.Left[i] = t.RightKeys[rng.IntN(len(t.RightKeys))]
		}
	}
	r := &request{path: fmt.Sprintf("%s?%s=%d&%s=%d", api.RouteJoin, api.QueryLeft, len(t.Left), api.QueryRight, len(t.RightKeys)), form: form, rows: rows}
	if form == api.Binary {
		r.body = api.Append(api.Append(api.Append(nil, t.Left), t.RightKeys), t.RightValues)
	} else {
		r.body = encode(t)
	}
	r.right = func(body []byte) bool {
		got, err := joined(body, form)
		return err == nil && slices.EqualFunc(got, t.Left, func(v, key uint32) bool {
			want, ok := partners[key]
			return ok && v == want || !ok && v == api.NoPartner
		})
	}
	return r
}

func joined(body []byte, form string) ([]uint32, error) {
	if form == api.Binary {
		return api.Values[uint32](body)
	}
	var response api.JoinResponse
	err := json.Unmarshal(body, &response)
	values := make([]uint32, len(response.Values))
	for i, v := range response.Values {
		values[i] = api.NoPartner
		if v != nil {
			values[i] = *v
		}
	}
	return values, err
}

// encode is for values that have only numbers and strings.
func encode(v any) []byte {
	b, _ := json.Marshal(v) //nolint:errchkjson // see above
	return b
}

func (r *request) http(ctx context.Context, url string) (*http.Request, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", r.form)
	return q, nil
}
