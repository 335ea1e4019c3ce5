// Package histories draws random histories of orders with a restore in the middle, and checks what is left: no order is
// charged twice, nothing is given twice, and nothing is forgotten.
//
// A history is a seed. Clients, customers in their browsers, people in Stripe's dashboard and banks act on a few orders,
// calls to Stripe fail, and time passes. At some moment the database is copied, perhaps between two commits of a request.
// What happens until the restore is lost here, and not at Stripe. In each fourth history that happens twice. The tests of
// lives play a few histories, and the night plays hundreds.
package histories
