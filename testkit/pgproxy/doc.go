// Package pgproxy stands between a test and PostgreSQL and knows enough of the
// wire protocol to break it at a chosen message.
//
// A commit whose answer is lost is the one failure that cannot be staged by
// pulling cables: a cut by time or by bytes hits before the server has read the
// statement, or after, as luck has it, and the two want opposite things of the
// program. The proxy reads whole messages, so it can do either for certain:
//
//   - Before: the statement never reaches the server. It had no effect.
//   - After: the server has executed it and said so, and only the proxy received it.
//     It had its effect.
//
// For the client the two look the same, which is the point.
//
// A statement is chosen by a part of its text; every statement of this project
// begins with its name in a comment, so that is the part to choose. A COMMIT is
// chosen by a statement of its transaction.
//
// A statement over arrays is a batch; it can be chosen by the number of its rows as well (BeforeBatch, AfterBatch),
// which is the length of the array that is its first parameter.
//
// It can also have the server fail a statement with an error of no known kind (Fail), which is how tests find an error
// that the program swallows.
//
// The proxy can also rewrite statements on their way, which is how tests take a
// guard out of one without touching the program, refuse connections, which is a
// database that is away, and look like a connection pooler.
package pgproxy
