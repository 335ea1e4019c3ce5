// Package dbtest gives a test a database of its own: real PostgreSQL, migrated,
// empty, and nobody else's until the test ends.
//
// One server serves a whole test process, found as package devpg describes:
// TEST_DATABASE_URL first, and PAYONCE_PG=url|docker|local|download to insist on
// one source. It starts with the first test that needs it. The schema is
// migrated once, into a template, and copied. A database to which a test has only
// written rows is emptied and goes to the next test, with the pools that Kept has
// opened; every other one is dropped. So tests never share rows, run in parallel,
// and a test costs what its statements cost.
//
// On a server named by TEST_DATABASE_URL several test processes meet. They share
// the template, whose name is a digest of the migrations and which is made under
// an advisory lock; a database that a killed test left there is dropped by a
// later run.
//
// A test is never skipped because PostgreSQL is missing: it fails, with the ways
// to fix that. Only -short skips, and says so.
//
// The server ends with the process, however that ends. A package that also wants
// its folder gone before the next command runs says
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
package dbtest
