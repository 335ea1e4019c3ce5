// Package demo plays the demo in full: all its scenes, against itself and against a system that runs elsewhere, ended in
// every way, and with a guard of the service taken out, which it must notice. It presses each button of the console while
// secrets are sent to it. Each of these is a demo of its own, which costs ten seconds of a processor; the tests of
// cmd/demo play one, with three scenes.
//
//	go test -C proof ./night/demo
package demo
