package outbox

import "encoding/json"

// Data encodes an object as the data of an event. It panics if it cannot: every object
// of the API can be encoded.
func Data(object any) []byte {
	data, err := json.Marshal(object)
	if err != nil {
		panic("bug: an object cannot be encoded as JSON: " + err.Error())
	}
	return data
}
