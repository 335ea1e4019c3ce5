// Package world has everything that a test of the service
// needs: a database of its own on real PostgreSQL, a simulated Stripe on a real
// socket, a tenant, and the API itself, either in this process or as the real
// program in processes that can be killed.
//
//	w := world.New(t)
//	api := w.Local(world.LocalOptions{})          // in this process
//	a, b := w.Process(), w.Process()              // or for real
//	order := api.Order()
//	answer := api.Pay("key-1", order, "pm_card_visa")
//	w.RequireChargedOnce(order)
//
// Whatever a test does, it does over HTTP, and every response is checked against the
// OpenAPI document on its way. The result is checked in two sources that do
// not know each other: the simulator's effect log and the rows in the database
// (Violations).
package world
