// Package testbed is a room with everything in it that a test of the service
// needs: a database of its own on real PostgreSQL, a simulated Stripe on a real
// socket, a tenant, and the API itself, either in this process or as the real
// program in processes that can be killed.
//
//	w := testbed.New(t)
//	api := w.Local(testbed.LocalOptions{})        // in this process
//	a, b := w.Process(), w.Process()              // or for real
//	order := api.Order()
//	answer := api.Pay("key-1", order, "pm_card_visa")
//	w.RequireChargedOnce(order)
//
// Whatever a test does, it does over HTTP, and every answer is held against the
// OpenAPI document on its way. What came of it is asked of two witnesses that do
// not know each other: the simulator's effect log and the rows in the database
// (Violations).
package world
