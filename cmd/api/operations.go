package main

import "example.com/payonce/internal/operations"

// ownOperations are the operations of one's own, one line each. This is the one place in
// which an operation is registered: serve and audit read the same list.
// docs/add-an-operation.md starts from a skeleton.
var ownOperations = operations.List{
	// tips.Operation(),
}
