package operations

import "example.com/payonce/internal/keyhistory"

// describe adds the operation to what the history of a key knows. An operation that
// charges cards needs no description: its charges say what a key made.
func (o Operation) describe(histories map[string]keyhistory.Describe) {
	switch {
	case histories == nil:
	case o.Charges != nil:
		histories[o.Name] = keyhistory.OfCharge(o.Registered)
	default:
		histories[o.Name] = o.History
	}
}
