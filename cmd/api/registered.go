package main

import "example.com/payonce/internal/payments"

// registered are the operations of one's own that charge cards, by the name that they
// put into the metadata of their PaymentIntents: docs/add-an-operation.md. The service
// and the audit are given the same map.
var registered = map[string]payments.Registered{}
