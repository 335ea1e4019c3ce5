// Package admin is the admin address: metrics for scrapers, profiles for engineers, and the pages of parts such as the
// operator's. It is not for the public, and does not rely on that:
//
//	/metrics        open to all clients that reach the address, because scrapers have no password. No secret and no id of
//	                a customer's object is in it.
//	/debug/pprof/   shows memory and the command line, and a profile costs processor time. It takes ADMIN_TOKEN, as a
//	                bearer token or as the password of Basic authentication (go tool pprof has no other way). Without
//	                a token it answers this machine only.
//	pages           check for themselves, with the Token that they share with pprof.
//
// "This machine" is a loopback address at both ends and a Host that can only mean this machine. The connection alone
// does not prove it: a page of another site may point its own host name at 127.0.0.1 and read the response as its own
// (DNS rebinding), and a reverse proxy on the same host connects from loopback for all clients.
//
// Wrong tokens are limited per address and process, and logged without the token. A request that has none is refused and
// not counted: a browser sends one before it asks for the password. The limit is not what keeps a token of 24 characters from being
// guessed; it keeps a guess that is under way from filling the log. It never believes X-Forwarded-For: anybody
// can write another address into it for each guess. So behind a proxy all operators share the proxy's limit, and
// who guesses through it can keep others from signing in, but not from working in a session that they have.
package admin
