// Package postgres has the tests of internal/postgres that fill tables or take a server of their own:
//
//   - the plans of the statements on tables with tens of thousands of rows, without statistics and with them;
//   - a start with round trips of a second, for each connect_timeout (TestStartsAtADistance);
//   - deploy/roles.sql on a database in use, for each kind of role that may run it.
//
// The root keeps the plans of a new database, the conditions under which a statement uses its index as the service's
// role, and the rules of the roles.
package postgres
