// Package shop checks out: a shop is an API, what there is to sell, and a view of each
// checkout's steps. The tests of package checkout and the enumerations that
// run by night share it.
//
// Nothing of the service imports it.
package shop
