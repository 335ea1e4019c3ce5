// Package cells runs two cells behind Debian's HAProxy with the file of deploy/, and kills one of them: its processes and
// its PostgreSQL. The other one's latency must not change, none of its requests may fail, and when the killed one is back,
// all that it had begun is finished. docs/cells.md is the page about cells.
//
//	go test -C proof ./cells                                     one cell is killed once
//	CELLS_ROUNDS=10 go test -C proof -timeout 30m -v ./cells     each is killed in turn, as the night does
package cells
