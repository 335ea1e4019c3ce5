// Package disputes enumerates the errors of recording, showing and comparing disputes: each
// statement and each request to Stripe fails once (the tests whose names end in NoError).
//
// internal/disputes has the short form of each.
//
//	go test -C proof ./night/disputes                                             all
//	go test -C proof ./night/disputes -run 'TestRecordingOfDisputesSwallowsNoError/Found'    some
package disputes
