package outbox

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// ErasedSince reports whether a message is an event as it was published before its customer was erased: own, the event
// as it would be published now, differs only in that customer_reference and metadata are blank.
func ErasedSince(own, message []byte) bool {
	is, isRead := readNumbers(own)
	was, wasRead := readNumbers(message)
	if !isRead || !wasRead {
		return false
	}
	data, isObject := is["data"].(map[string]any)
	former, wasObject := was["data"].(map[string]any)
	if !isObject || !wasObject {
		return false
	}
	for name, blank := range map[string]any{"customer_reference": nil, "metadata": map[string]any{}} {
		now, ok := data[name]
		if _, had := former[name]; ok && had && reflect.DeepEqual(now, blank) {
			former[name] = blank
		}
	}
	return reflect.DeepEqual(is, was)
}

// readNumbers decodes an object with its numbers as they are written.
func readNumbers(text []byte) (object map[string]any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err := d.Decode(&object)
	return object, err == nil && !d.More()
}
