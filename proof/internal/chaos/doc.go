// Package chaos injects faults into a running system and checks every invariant.
//
// What runs is real: API processes, PostgreSQL with fsync, a JetStream broker in
// a process of its own. Only Stripe is simulated, in this process, where no kill
// reaches it, for it is the witness (package stripesim).
//
// A run has four phases.
//
//   - Chaos. Clients behave as clients do: they retry, send duplicates at once,
//     hang up, give up, reuse a key for another body or in another tenant; they
//     pay, refund, cancel, check out, answer their banks (intents.go). Faults hit
//     meanwhile, several at a time: processes are killed, frozen past their
//     leases and stopped, PostgreSQL crashes, the broker crashes (faults.go);
//     cables are cut, slow or swallow what they are given, and connections end
//     exactly before or exactly after a commit, also one that several requests
//     share (faults_network.go); Stripe does
//     everything that it can do wrong, and its webhooks come twice, reversed,
//     late or never (faults_stripe.go). One process lives an hour ago, one in an
//     hour (build.go).
//     Meanwhile people move money at Stripe without the service: refunds, disputes
//     and cancels at the dashboard, and browsers that pay with a client secret that
//     they were given long ago (people.go; -people says who takes part).
//   - Island. The faults are over but for one, which stays: a node has lost
//     everything that it depends on. The others must finish whatever anybody
//     wants. Faults that always heal hide a system that needs them to.
//   - Quiet. Traffic stops. Everything that was begun must be finished without a
//     client, and everything that happened told to everyone, in the times that
//     are promised.
//   - Checks (check.go). Every invariant, by every witness there is: queries,
//     as the audit asks them; Stripe's effect log, which does not know what was
//     answered to whom; the broker's log, read from its beginning; what clients
//     were told, held against the rows and asked for again; the log that the
//     database keeps of who held each claim and who moved it (witness.go); and
//     the history of all answers, against a model (package history).
//
// A run that broke too little, or looked at nothing, proves nothing, so it fails
// (Report.TooLittle). A judge is no better than what he would notice: the tests
// show each of them something to find.
//
// A run of another kind (RunFailover) loses PostgreSQL's primary again and again, of
// a pair of servers or of a cluster under Patroni, with the same clients and checks
// (failover.go). RunAsync counts what an asynchronous standby loses.
//
// The schedule comes from the seed. The interleaving does not, as it never does
// with real processes; a seed makes a bug likely to come back, not certain.
package chaos
