// Package client kills programs that use payonce's client library, and counts what their customers were charged. The
// library is [example.com/payonce/client]; the program is in the folder shop.
//
//	go test -C proof ./client                                    half a minute
//	CLIENT_CHAOS=10m go test -C proof -timeout 30m -v ./client   for as long as you like, as the night does
package client
