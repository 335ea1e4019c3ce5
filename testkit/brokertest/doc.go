// Package brokertest holds every broker to one contract: what the relay relies on when it publishes, and what consumers
// rely on when they read.
//
// A Suite is an adapter with a server. [Rules] are the contract, each a test; a suite runs all of them but those that
// [Exceptions] names for its server, with the reason.
package brokertest
