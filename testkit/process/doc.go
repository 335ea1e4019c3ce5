// Package process runs programs in child processes, so that they can
// really be killed: the service is started with it.
//
// A child ends when we do, however we end: the kernel sees to it on Linux, and a
// shell that outlives us for a moment everywhere on Unix ([Group]). It inherits
// nothing of our environment, where a real Stripe key may stand. What it logs
// goes to one file ([Log]), which is kept if something went wrong. [Stage] has all
// of that, and takes it down in the right order.
package process
