//go:build faults

package main

import (
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// boundary does to this process what the variable FAULT_AT says, right after a
// recovery point is durable: "create_payment/payment_recorded=kill" ends it as
// SIGKILL does, "…=stop" freezes it until somebody sends SIGCONT, "…=sleep:2s"
// delays it. Several are separated by commas; each fires once. A consumer has a
// boundary, too, after the effect of an event and before its acknowledgement:
// "ledger/payment.succeeded=kill".
func boundary(getenv func(string) string) func(operation, recoveryPoint string) {
	faults := make(chan map[string]string, 1)
	m := map[string]string{}
	for entry := range strings.SplitSeq(getenv("FAULT_AT"), ",") {
		if at, fault, ok := strings.Cut(entry, "="); ok {
			m[at] = fault
		}
	}
	faults <- m
	return func(operation, recoveryPoint string) {
		m := <-faults
		fault, at := m[operation+"/"+recoveryPoint], operation+"/"+recoveryPoint
		delete(m, at)
		faults <- m
		switch verb, arg, _ := strings.Cut(fault, ":"); verb {
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		case "stop":
			// Another thread may be the one that takes the signal, and this one would go on until it is scheduled: what came
			// after the boundary would happen before the process stands still.
			goOn := make(chan os.Signal, 1)
			signal.Notify(goOn, syscall.SIGCONT)
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			<-goOn
			signal.Stop(goOn)
		case "sleep":
			if d, err := time.ParseDuration(arg); err == nil {
				time.Sleep(d)
			}
		}
	}
}
