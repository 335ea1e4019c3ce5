// Package lives plays random histories of orders with a restore in the middle (TestHistories): three hundred that are the
// same each night, and fifty that are drawn. The name of a subtest is the seed of its history.
//
// internal/lives plays a few.
//
//	go test -C proof ./night/lives                                all
//	HISTORY=17 go test -C proof ./night/lives                     that of one seed
//	HISTORIES=2000 go test -C proof ./night/lives -timeout=60m    more that are drawn
package lives
