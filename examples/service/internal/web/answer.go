package web

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
)

// The answers are written when everything has gone well: what fails here is
// that the client went away.

func answerSort(w http.ResponseWriter, form string, in *sortInput) {
	switch {
	case form == api.Binary && in.kind == api.Uint64:
		writeBinary(w, api.Append(nil, in.keys64))
	case form == api.Binary:
		writeBinary(w, api.Append(nil, in.keys32))
	case in.kind == api.Uint64:
		writeJSON(w, http.StatusOK, api.SortResponse[uint64]{Type: in.kind, Keys: in.keys64})
	default:
		writeJSON(w, http.StatusOK, api.SortResponse[uint32]{Type: in.kind, Keys: in.keys32})
	}
}

func answerJoin(w http.ResponseWriter, form string, values []uint32) {
	if form == api.Binary {
		writeBinary(w, api.Append(nil, values))
		return
	}
	response := api.JoinResponse{Values: make([]*uint32, len(values))}
	for i, v := range values {
		if v != api.NoPartner {
			response.Values[i] = &values[i]
		}
	}
	writeJSON(w, http.StatusOK, response)
}

func writeBinary(w http.ResponseWriter, data []byte) {
	w.Header().Set("Content-Type", api.Binary)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.Header().Set("X-Content-Type-Options", "nosniff") // the client's own bytes, and no page
	_, _ = w.Write(data)                                //nolint:gosec // see above
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", api.JSON)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) //nolint:errchkjson // the client went away
}
