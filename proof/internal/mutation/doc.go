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
// when a test fails with it, and fails again alone. The tests of the service come before those of proof/night, which
// enumerate what the former have a case of. Which test kills which mutant is written to out/mutants, and the
// next run tries that one first: then its failing once is enough. No run needs a record. One that survives
// wants a test, or a sentence in equivalent.txt that says why no test can tell it
// apart; survivors.txt has those that a test could kill and none does.
//
// For a change the mutants in the changed lines are tried, as git names them (changes.go), on the tests of one package after
// the other until the time is over (within.go). What is left by then is the night's, which tries every mutant that no list names on every test.
package mutation
