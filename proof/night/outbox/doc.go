// Package outbox has the tests of internal/outbox that need many events or much time:
//
//   - relays that are killed, paused and doubled at random, among writers, on a broker in memory and on a JetStream whose
//     connections are cut or stand still at any byte and whose server restarts;
//   - the two relays that one writes first, which the same check finds wrong;
//   - a backlog of twenty thousand events.
//
// The root has each fault once, at a place that the test chooses.
package outbox
