// Package mutation generates mutants of the service, and finds out which of
// them no test kills.
//
// A list of guards that is kept by hand has the guards that somebody thought of.
// Here the list is read from the source: every constraint, trigger and unique
// index of the schema; every operand of an AND or OR, every condition of a WHERE,
// ON, HAVING or FILTER, every arm of a CASE, every ON CONFLICT, row lock and ORDER
// BY of the queries and views, as PostgreSQL's own parser sees them; and every condition and
// case of the packages that move money, and of the files that send their rows and
// events in batches.
//
// All mutants are compiled into the tests once, each behind a switch (package
// mutantswitch, laid over the source by go build -overlay), and one process runs
// one of them. Each test first runs without a mutant and records which mutants it
// reaches, that is, where a switch would change a value; a mutant is then tried on
// the tests that reach it, the cheap and specific ones first. A mutant is killed
// when a test fails with it, and fails again alone. Which one is recorded, and the
// next run tries that one first: then its failing once is enough. One that survives
// wants a test, or a sentence in equivalent.txt that says why no test can tell it
// apart.
package mutation
