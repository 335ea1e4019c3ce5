// Package prometheus has a real Prometheus watch a system that is being broken:
// with our own configuration and our own rules, which unit tests of the rules
// feed with numbers that somebody made up. Here the service itself has to say
// what they listen for.
//
// Waiting ten minutes for an alert would take a test ten minutes, so the rules
// are judged sixty times as fast as in production ([Hurried]): their durations
// are divided, their bounds on counts, rates and shares are not.
//
// [Prometheus.Seen] is the judgement that chaos and TestObserve share: each rule
// was evaluated, without an error, on series that exist, and each query of each
// panel has returned numbers. [Prometheus.Firings] is when which alert fired.
package prometheus
