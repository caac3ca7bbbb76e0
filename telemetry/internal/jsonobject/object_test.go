package jsonobject_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/fencepost-gpu/fencepost/telemetry/internal/jsonobject"
)

func TestMembersStandInTheirOrder(t *testing.T) {
	o := jsonobject.Object{"z", 1, "a", uint64(math.MaxUint64), "text", "<\"\x1b>", "none", nil, "decimal", json.Number("0.250"),
		"inner", jsonobject.Object{"yes", true, "empty", jsonobject.Object{}}, "list", []jsonobject.Object{{"n", -1}}}
	const want = `{"z":1,"a":18446744073709551615,"text":"\u003c\"\u001b\u003e","none":null,"decimal":0.250,"inner":{"yes":true,"empty":{}},"list":[{"n":-1}]}`
	if text, err := json.Marshal(o); err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}

func TestAValueWithoutJSONIsAnError(t *testing.T) {
	if text, err := json.Marshal(jsonobject.Object{"in", jsonobject.Object{"number", math.NaN()}}); err == nil {
		t.Errorf("%s", text)
	}
}
