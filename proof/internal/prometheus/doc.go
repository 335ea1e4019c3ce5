// Package prometheus has a real Prometheus watch a system that is being broken:
// with our own configuration and our own rules, which unit tests of the rules
// feed with made-up numbers. Here the service itself has to export
// what they listen for.
//
// Waiting ten minutes for an alert would take a test ten minutes, so the rules
// are evaluated sixty times as fast as in production ([Accelerated]): their durations
// are divided, their bounds on counts, rates and shares are not.
//
// [Prometheus.Seen] is the check that chaos and TestObserve share: each rule
// was evaluated, without an error, on series that exist, and each query of each
// panel has returned numbers. [Prometheus.Firings] is when which alert fired.
package prometheus
