//go:build notracing

package main

// exporterLinked is false here: OpenTelemetry's SDK and its exporter, which needs gRPC's modules, are not linked. A
// setting that wants them stops the start. Here traces have no startTracing, so nothing is traced.
const exporterLinked = false
